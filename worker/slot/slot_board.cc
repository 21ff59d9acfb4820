#include "worker/slot/slot_board.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "worker/clock.h"

namespace roundhouse::worker {
namespace {

// Refusals further apart have nothing to do with each other.
constexpr absl::Duration kLately = absl::Seconds(1);

bool RefusedLately(const SlotState& slot, int64_t now_ns) {
  return absl::Nanoseconds(now_ns - slot.refused_last_ns) < kLately;
}

}  // namespace

DeviceMemory SlotBoard::memory() const {
  DeviceMemory memory = device_.memory();
  memory.limit_bytes -= std::min(memory.limit_bytes, reserved_bytes_);
  return memory;
}

absl::Status SlotBoard::Add(std::unique_ptr<SlotState> slot) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (slots.size() >= wire::kMaxDispatchedSlots) {
      return absl::ResourceExhaustedError(
          absl::StrCat("slot ", slot->command.slot, ": ", slots.size(),
                       " slots are with this worker already"));
    }
    slot->behind_sample = SampleIsDue();
    slots.push_back(std::move(slot));
  }
  changed_.notify_all();
  RingFeeder();
  return absl::OkStatus();
}

absl::Status SlotBoard::AddSample(std::unique_ptr<SampleState> sample) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    const size_t here = samples_.size() + (sample_bytes_ > 0 ? 1 : 0);
    if (here >= kMaxSampleCommands) {
      return absl::ResourceExhaustedError(
          absl::StrCat("sample ", sample->command.sample, ": ", here,
                       " samples are with this worker already"));
    }
    samples_.push_back(std::move(sample));
  }
  changed_.notify_all();
  return absl::OkStatus();
}

void SlotBoard::ForgetSample(uint64_t job) {
  Update([&] {
    if (kept_.job == job) kept_ = SampleCache();
    if (sample_job_ == job) forget_sample_ = true;
  });
}

void SlotBoard::EndSample(SampleCache cache) {
  Update([&] {
    if (std::exchange(forget_sample_, false)) cache = SampleCache();
    kept_ = std::move(cache);
    sample_bytes_ = 0;
    sample_job_ = 0;
  });
}

void SlotBoard::Withdraw(uint64_t attempt) {
  Update([&] {
    for (const auto& slot : slots) {
      if (slot->attempt != attempt) continue;
      slot->withdrawn = true;
      slot->Abandon();
    }
  });
}

void SlotBoard::Stop() {
  Update([&] { stopping_.store(true); });
}

SlotState* SlotBoard::FirstQueued() const {
  for (const auto& slot : slots) {
    if (slot->phase == ComputePhase::kQueued && !slot->abandoned) {
      return slot.get();
    }
  }
  return nullptr;
}

bool SlotBoard::MayOvertake(const SlotState& slot) const {
  if (!slot.published || slot.behind_sample || !slot.FirstInputThere() ||
      !slot.FirstWeightsThere()) {
    return false;
  }
  uint64_t bytes = slot.planned_bytes();
  // Those that were overtaken may compute before all of this one is down.
  uint64_t working = slot.plan.working_bytes;
  for (const auto& other : slots) {
    if (other.get() == &slot) continue;
    bytes += other->phase == ComputePhase::kQueued ? other->held_bytes
                                                   : other->planned_bytes();
    working = std::max(working, other->plan.working_bytes);
  }
  return bytes + working <= limit_bytes();
}

SlotState* SlotBoard::Overtaker(const SlotState& first) const {
  std::vector<uint64_t> seen = {first.command.job};
  SlotState* lowest = nullptr;
  for (const auto& slot : slots) {
    const uint64_t job = slot->command.job;
    if (slot->phase != ComputePhase::kQueued || slot->abandoned ||
        std::find(seen.begin(), seen.end(), job) != seen.end()) {
      continue;
    }
    seen.push_back(job);
    const bool lower =
        lowest == nullptr || slot->command.turn < lowest->command.turn;
    if (lower && MayOvertake(*slot)) lowest = slot.get();
  }
  return lowest;
}

uint64_t SlotBoard::BytesBeforeSample() const {
  uint64_t bytes = 0;
  for (const auto& slot : slots) {
    bytes += slot->behind_sample ? slot->held_bytes : slot->planned_bytes();
  }
  return bytes;
}

void SlotBoard::LeaveRoomFor(const SlotState& slot) {
  uint64_t bytes = slot.plan.working_bytes + kept_.bytes();
  for (const auto& other : slots) bytes += other->held_bytes;
  if (bytes > limit_bytes()) kept_ = SampleCache();
}

bool SlotBoard::TakeSample(Work& work) {
  const SampleState& sample = *samples_[0];
  const uint64_t before = BytesBeforeSample();
  const uint64_t limit = limit_bytes();
  const uint64_t free = limit - std::min(limit, before);
  const uint64_t resident = sample.plan.resident_bytes();
  if (sample.plan.least_bytes() > free) {
    memory_wanted_.store(true);
    return false;
  }
  kept_.Prune(sample.command, sample.plan);
  work.sample = std::move(samples_[0]);
  samples_.pop_front();
  work.sample->resident = resident <= free;
  sample_bytes_ = std::max<uint64_t>(
      1, work.sample->resident ? resident : work.sample->plan.streamed_bytes());
  sample_job_ = work.sample->command.job;
  work.cache = std::exchange(kept_, SampleCache());
  for (const auto& slot : slots) slot->behind_sample = false;
  return true;
}

bool SlotBoard::TakeWork(Work& work) {
  SlotState* slot = FirstQueued();
  bool ready = slot != nullptr && slot->FirstInputThere();
  if (slot != nullptr) {
    const bool complete = ready && slot->FirstWeightsThere();
    SlotState* const other = Overtaker(*slot);
    if (other != nullptr &&
        (!complete || other->command.turn < slot->command.turn)) {
      other->fills_bubble = !complete;
      slot = other;
      ready = true;
    }
  }
  if (!samples_.empty() && (!ready || samples_[0]->due()) && TakeSample(work)) {
    return true;
  }
  if (!ready || slot->behind_sample) return false;
  if (!samples_.empty()) ++samples_[0]->passed_over;
  slot->phase = ComputePhase::kComputing;
  LeaveRoomFor(*slot);
  work.slot = slot;
  return true;
}

SlotBoard::Work SlotBoard::NextToCompute() {
  Work work;
  std::unique_lock<std::mutex> lock(mutex);
  changed_.wait(lock, [&] { return stopping() || TakeWork(work); });
  return work;
}

void SlotBoard::WaitUntil(const std::function<bool()>& ready) {
  std::unique_lock<std::mutex> lock(mutex);
  changed_.wait(lock, ready);
}

absl::Status SlotBoard::Await(SlotState& slot,
                              const std::function<bool()>& ready,
                              int64_t* waited_ns) {
  std::unique_lock<std::mutex> lock(mutex);
  const auto over = [&] { return stopping() || slot.abandoned || ready(); };
  if (!over()) {
    const int64_t began_ns = MonotonicNow();
    while (!over()) {
      if (RefusedLately(slot, MonotonicNow())) {
        changed_.wait_for(lock, absl::ToChronoMilliseconds(kAskAgainEvery));
      } else {
        changed_.wait(lock);
      }
    }
    *waited_ns += MonotonicNow() - began_ns;
  }
  if (stopping() || slot.abandoned) {
    return absl::CancelledError("the slot was given up");
  }
  return absl::OkStatus();
}

bool SlotBoard::GivenUp(SlotState& slot) {
  if (slot.abandoned || stopping()) return true;
  if (!wire::Cancelled(doorbell_, slot.attempt)) return false;
  Update([&] {
    slot.withdrawn = true;
    slot.Abandon();
  });
  return true;
}

void SlotBoard::Update(const std::function<void()>& change) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    change();
  }
  changed_.notify_all();
  RingFeeder();
}

void SlotBoard::RingFeeder() {
  rung_.store(true);
  wire::Ring(doorbell_);
}

bool SlotBoard::MayHold(const SlotState& slot, uint64_t bytes) {
  uint64_t committed = slot.held_bytes + bytes + sample_bytes_;
  if (slot.behind_sample) committed += samples_[0]->plan.least_bytes();
  uint64_t held = committed;  // where all older ones take no more than now
  const bool waits = slot.phase == ComputePhase::kQueued;
  uint64_t working =
      slot.phase == ComputePhase::kComputed ? 0 : slot.plan.working_bytes;
  bool older = true;
  for (const auto& other : slots) {
    if (other.get() == &slot) {
      older = false;
      continue;
    }
    if (other->phase == ComputePhase::kQueued) {
      if (waits && older) {
        committed += other->planned_bytes();
        working = std::max(working, other->plan.working_bytes);
      }
      held += other->held_bytes;
    } else {
      if (other->phase == ComputePhase::kComputing) {
        working = std::max(working, other->plan.working_bytes);
      }
      const uint64_t first =
          waits || older ? other->planned_bytes() : other->held_bytes;
      committed += first;
      held += first;
    }
  }
  const uint64_t limit = limit_bytes();
  const uint64_t most = std::max(committed, held) + working;
  if (most > limit) {
    memory_wanted_.store(true);
    return false;
  }
  if (most + kept_.bytes() > limit) kept_ = SampleCache();
  return true;
}

bool SlotBoard::AnyRefusedLately() const {
  const int64_t now_ns = MonotonicNow();
  return std::any_of(slots.begin(), slots.end(), [now_ns](const auto& slot) {
    return RefusedLately(*slot, now_ns);
  });
}

absl::StatusOr<std::unique_ptr<DeviceBuffer>> SlotBoard::Allocate(
    SlotState& slot, uint64_t bytes, const std::string& what) {
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> buffer =
      device_.Allocate(bytes, what);
  if (!absl::IsResourceExhausted(buffer.status())) return buffer;
  const bool another_runs =
      sample_bytes_ > 0 ||
      std::any_of(slots.begin(), slots.end(), [&](const auto& other) {
        return other.get() != &slot && other->phase != ComputePhase::kQueued;
      });
  const int64_t now_ns = MonotonicNow();
  if (another_runs || !RefusedLately(slot, now_ns)) {
    slot.refused_since_ns = now_ns;
  }
  slot.refused_last_ns = now_ns;
  if (!another_runs &&
      absl::Nanoseconds(now_ns - slot.refused_since_ns) >= max_refusal_) {
    return buffer;
  }
  memory_wanted_.store(true);
  return std::unique_ptr<DeviceBuffer>();
}

absl::StatusOr<DeviceBuffer*> SlotBoard::TryTake(SlotState& slot,
                                                 BufferPool& pool,
                                                 bool* fresh) {
  if (fresh != nullptr) *fresh = false;
  if (!pool.free.empty()) {
    DeviceBuffer* const buffer = pool.free.back();
    pool.free.pop_back();
    return buffer;
  }
  const uint64_t cost = DeviceBytes(pool.need.bytes);
  if (pool.all.size() >= pool.need.count || !MayHold(slot, cost)) {
    return nullptr;
  }
  ASSIGN_OR_RETURN(std::unique_ptr<DeviceBuffer> buffer,
                   Allocate(slot, pool.need.bytes, pool.what));
  if (buffer == nullptr) return nullptr;
  slot.held_bytes += cost;
  if (fresh != nullptr) *fresh = true;
  pool.all.push_back(std::move(buffer));
  return pool.all.back().get();
}

absl::StatusOr<DeviceBuffer*> SlotBoard::TryTakeWeights(SlotState& slot,
                                                        uint64_t bytes) {
  const uint64_t cost = DeviceBytes(bytes);
  if (!MayHold(slot, cost)) return nullptr;
  ASSIGN_OR_RETURN(std::unique_ptr<DeviceBuffer> buffer,
                   Allocate(slot, bytes, "a unit's weights"));
  if (buffer == nullptr) return nullptr;
  slot.held_bytes += cost;
  slot.weight_buffers.push_back(std::move(buffer));
  return slot.weight_buffers.back().get();
}

}  // namespace roundhouse::worker
