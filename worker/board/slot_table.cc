#include "worker/board/slot_table.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"

namespace roundhouse::worker {
namespace {

// Refusals further apart have nothing to do with each other.
constexpr absl::Duration kLately = absl::Seconds(1);

// What a library takes while slots compute: one backfill slot, and one other.
class WorkingBytes {
 public:
  void Add(const SlotState& slot) {
    uint64_t& most = most_[slot.backfill() ? 1 : 0];
    most = std::max(most, slot.plan.working_bytes);
  }
  uint64_t sum() const { return most_[0] + most_[1]; }

 private:
  uint64_t most_[2] = {};
};

}  // namespace

bool SlotTable::RefusedLately(const SlotState& slot, int64_t now_ns) {
  return absl::Nanoseconds(now_ns - slot.refused_last_ns) < kLately;
}

DeviceMemory SlotTable::memory() const {
  DeviceMemory memory = device_.memory();
  memory.limit_bytes -= std::min(memory.limit_bytes, reserved_bytes_);
  return memory;
}

absl::Status SlotTable::Add(std::unique_ptr<SlotState> slot) {
  if (slots_.size() >= wire::kMaxDispatchedSlots) {
    return absl::ResourceExhaustedError(
        absl::StrCat("slot ", slot->command.slot, ": ", slots_.size(),
                     " slots are with this worker already"));
  }
  slot->behind_sample = SampleIsDue();
  slots_.push_back(std::move(slot));
  return absl::OkStatus();
}

SlotState* SlotTable::Find(uint64_t attempt) {
  for (const auto& slot : slots_) {
    if (slot->attempt == attempt) return slot.get();
  }
  return nullptr;
}

absl::Status SlotTable::AddSample(std::unique_ptr<SampleState> sample) {
  const size_t here = samples_.size() + (sample_bytes_ > 0 ? 1 : 0);
  if (here >= kMaxSampleCommands) {
    return absl::ResourceExhaustedError(
        absl::StrCat("sample ", sample->command.sample, ": ", here,
                     " samples are with this worker already"));
  }
  samples_.push_back(std::move(sample));
  return absl::OkStatus();
}

void SlotTable::ForgetSample(uint64_t job) {
  if (kept_.job == job) kept_ = SampleCache();
  if (sample_job_ == job) forget_sample_ = true;
}

void SlotTable::EndSample(SampleCache cache) {
  if (std::exchange(forget_sample_, false)) cache = SampleCache();
  kept_ = std::move(cache);
  sample_bytes_ = 0;
  sample_job_ = 0;
}

SlotState* SlotTable::FirstQueued() const {
  for (const auto& slot : slots_) {
    if (slot->phase == ComputePhase::kQueued && !slot->abandoned &&
        !slot->backfill()) {
      return slot.get();
    }
  }
  return nullptr;
}

bool SlotTable::MayOvertake(const SlotState& slot) const {
  if (!slot.published || slot.behind_sample || !slot.FirstInputThere() ||
      !slot.FirstWeightsThere()) {
    return false;
  }
  uint64_t bytes = slot.planned_bytes();
  // Slots that were overtaken may compute before all of this one is down.
  WorkingBytes working;
  working.Add(slot);
  for (const auto& other : slots_) {
    if (other.get() == &slot) continue;
    const bool keeps_to_now =
        other->phase == ComputePhase::kQueued && !other->backfill();
    bytes += keeps_to_now ? other->held_bytes : other->claimed_bytes();
    if (!other->backfill() || other->HoldsWorkingBytes()) working.Add(*other);
  }
  return bytes + working.sum() <= limit_bytes();
}

SlotState* SlotTable::Overtaker(const SlotState& first) const {
  std::vector<uint64_t> seen = {first.command.job};
  SlotState* lowest = nullptr;
  for (const auto& slot : slots_) {
    const uint64_t job = slot->command.job;
    if (slot->phase != ComputePhase::kQueued || slot->abandoned ||
        slot->backfill() ||
        std::find(seen.begin(), seen.end(), job) != seen.end()) {
      continue;
    }
    seen.push_back(job);
    const bool lower = lowest == nullptr || slot->turn < lowest->turn;
    if (lower && MayOvertake(*slot)) lowest = slot.get();
  }
  return lowest;
}

uint64_t SlotTable::BytesBeforeSample() const {
  uint64_t bytes = 0;
  for (const auto& slot : slots_) {
    bytes += slot->behind_sample ? slot->held_bytes : slot->claimed_bytes();
    if (slot->HoldsWorkingBytes()) bytes += slot->plan.working_bytes;
  }
  return bytes;
}

void SlotTable::LeaveRoomFor(const SlotState& slot) {
  uint64_t bytes = slot.plan.working_bytes + kept_.bytes();
  for (const auto& other : slots_) {
    bytes += other->held_bytes;
    if (other.get() != &slot && other->HoldsWorkingBytes()) {
      bytes += other->plan.working_bytes;
    }
  }
  if (bytes > limit_bytes()) kept_ = SampleCache();
}

bool SlotTable::TakeSample(Work& work) {
  const SampleState& sample = *samples_[0];
  const uint64_t before = BytesBeforeSample();
  const uint64_t limit = limit_bytes();
  const uint64_t free = limit - std::min(limit, before);
  const uint64_t resident = sample.plan.resident_bytes();
  if (sample.plan.least_bytes() > free) {
    memory_wanted_ = true;
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
  for (const auto& slot : slots_) slot->behind_sample = false;
  return true;
}

bool SlotTable::ComputesBackfill() const {
  return std::any_of(slots_.begin(), slots_.end(), [](const auto& slot) {
    return slot->backfill() && slot->phase == ComputePhase::kComputing;
  });
}

bool SlotTable::HasOthers() const {
  return std::any_of(slots_.begin(), slots_.end(), [](const auto& slot) {
    return slot->phase != ComputePhase::kComputed && !slot->backfill();
  });
}

SlotState* SlotTable::TakeBackfill() {
  if (ComputesBackfill()) return nullptr;
  std::vector<uint64_t> seen;
  SlotState* lowest = nullptr;
  for (const auto& slot : slots_) {
    const uint64_t job = slot->command.job;
    if (slot->phase != ComputePhase::kQueued || slot->abandoned ||
        std::find(seen.begin(), seen.end(), job) != seen.end()) {
      continue;
    }
    seen.push_back(job);
    if (!slot->backfill() || !slot->published || slot->behind_sample ||
        !slot->FirstInputThere() || !slot->FirstWeightsThere()) {
      continue;
    }
    if (lowest == nullptr || slot->turn < lowest->turn) lowest = slot.get();
  }
  if (lowest == nullptr) return nullptr;
  if (!samples_.empty()) ++samples_[0]->passed_over;
  lowest->phase = ComputePhase::kComputing;
  LeaveRoomFor(*lowest);
  return lowest;
}

bool SlotTable::TakeWork(Work& work) {
  SlotState* slot = FirstQueued();
  bool ready = slot != nullptr && slot->FirstInputThere();
  if (slot != nullptr) {
    const bool complete = ready && slot->FirstWeightsThere();
    SlotState* const other = Overtaker(*slot);
    if (other != nullptr && (!complete || other->turn < slot->turn)) {
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

// Working memory is one slot's at a time: it is counted beside.
SlotTable::Claim SlotTable::ClaimOn(const SlotState& slot,
                                    const SlotState& other, bool older) {
  const uint64_t planned = other.planned_bytes();
  if (other.backfill() && !(slot.backfill() && older)) {
    return {other.claimed_bytes(), other.claimed_bytes(), other.held_bytes > 0};
  }
  if (slot.backfill() && !other.backfill()) {
    if (slot.held_bytes == 0) return {planned, planned, true};
    const bool works =
        other.phase == ComputePhase::kComputing ||
        (other.phase == ComputePhase::kQueued && other.held_bytes > 0);
    return {other.held_bytes, other.held_bytes, works};
  }
  const bool waits = slot.phase == ComputePhase::kQueued;
  if (other.phase == ComputePhase::kQueued) {
    const bool before = waits && older;
    return {before ? planned : 0, other.held_bytes, before};
  }
  const uint64_t first = waits || older ? planned : other.held_bytes;
  return {first, first, other.phase == ComputePhase::kComputing};
}

bool SlotTable::MayHold(const SlotState& slot, uint64_t bytes) {
  uint64_t committed = slot.held_bytes + bytes + sample_bytes_;
  if (slot.backfill() && slot.held_bytes == 0) {
    // While the device refuses memory, none more comes beside the others.
    if (AnyRefusedLately()) return false;
    committed += slot.planned_bytes() - bytes;
  }
  if (slot.behind_sample) committed += samples_[0]->plan.least_bytes();
  uint64_t held = committed;  // where all older ones take no more than now
  WorkingBytes working;
  if (slot.phase != ComputePhase::kComputed) working.Add(slot);
  bool older = true;
  for (const auto& other : slots_) {
    if (other.get() == &slot) {
      older = false;
      continue;
    }
    const Claim claim = ClaimOn(slot, *other, older);
    committed += claim.committed;
    held += claim.held;
    if (claim.works) working.Add(*other);
  }
  const uint64_t limit = limit_bytes();
  const uint64_t most = std::max(committed, held) + working.sum();
  if (most > limit) {
    memory_wanted_ |= !slot.backfill();
    return false;
  }
  if (most + kept_.bytes() > limit) kept_ = SampleCache();
  return true;
}

bool SlotTable::AnyRefusedLately() const {
  const int64_t now_ns = MonotonicNs();
  return std::any_of(slots_.begin(), slots_.end(), [now_ns](const auto& slot) {
    return RefusedLately(*slot, now_ns);
  });
}

absl::StatusOr<std::unique_ptr<DeviceBuffer>> SlotTable::Allocate(
    SlotState& slot, uint64_t bytes, const std::string& what) {
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> buffer =
      device_.Allocate(bytes, what);
  if (!absl::IsResourceExhausted(buffer.status())) return buffer;
  const int64_t now_ns = MonotonicNs();
  const bool another_runs =
      sample_bytes_ > 0 ||
      std::any_of(slots_.begin(), slots_.end(), [&](const auto& other) {
        return other.get() != &slot && other->phase != ComputePhase::kQueued &&
               !RefusedLately(*other, now_ns);
      });
  if (another_runs || !RefusedLately(slot, now_ns)) {
    slot.refused_since_ns = now_ns;
  }
  slot.refused_last_ns = now_ns;
  if (!another_runs &&
      absl::Nanoseconds(now_ns - slot.refused_since_ns) >= max_refusal_) {
    return buffer;
  }
  memory_wanted_ |= !slot.backfill();
  return std::unique_ptr<DeviceBuffer>();
}

absl::StatusOr<DeviceBuffer*> SlotTable::TryTake(SlotState& slot,
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

absl::StatusOr<DeviceBuffer*> SlotTable::TryTakeWeights(SlotState& slot,
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

SlotTable::Held SlotTable::FindHeld(uint64_t attempt, uint32_t unit,
                                    std::initializer_list<State> states) {
  for (const auto& slot : slots_) {
    if (slot->attempt != attempt || slot->abandoned) continue;
    for (size_t u = 0; u < slot->held.size(); ++u) {
      const State found = slot->held[u].state;
      if (slot->command.units[u].unit == unit &&
          std::find(states.begin(), states.end(), found) != states.end()) {
        return {slot.get(), u};
      }
    }
  }
  return {};
}

TakenSums SlotTable::TakeSums(const Held& held, State next) {
  if (held.slot == nullptr) return {};
  HeldUnit& unit = held.slot->held[held.unit];
  unit.state = next;
  ++held.slot->copies_in_flight;  // it stays
  return {held.slot, held.unit, std::exchange(unit.sums, {})};
}

TakenSums SlotTable::TakeSumsToDownload(uint64_t attempt, uint32_t unit) {
  return TakeSums(FindHeld(attempt, unit, {State::kHeld, State::kSliced}),
                  State::kLeaving);
}

TakenSums SlotTable::TakeSumsToExchange(uint64_t attempt, uint32_t unit) {
  return TakeSums(FindHeld(attempt, unit, {State::kHeld}), State::kExchanging);
}

std::vector<TakenSums> SlotTable::TakeSumsHeldTooLong(
    int64_t now_ns, const HoldLimits& limits) {
  const int64_t limit_ns = absl::ToInt64Nanoseconds(
      memory_wanted_ ? limits.memory_wanted : limits.otherwise);
  bool some_held = false;
  std::vector<TakenSums> taken;
  for (const auto& slot : slots_) {
    for (size_t u = 0; u < slot->held.size(); ++u) {
      const HeldUnit& unit = slot->held[u];
      if (slot->abandoned || unit.state != State::kHeld) continue;
      some_held = true;
      if (now_ns - unit.since_ns < limit_ns) continue;
      taken.push_back(TakeSums({slot.get(), u}, State::kLeaving));
    }
  }
  if (!some_held) memory_wanted_ = false;
  return taken;
}

void SlotTable::ReturnSums(SlotState& slot, size_t unit,
                           std::vector<HeldSum> sums, State state) {
  slot.held[unit].sums = std::move(sums);
  slot.held[unit].state = state;
  --slot.copies_in_flight;
}

void SlotTable::ReleaseSlicedSums(uint64_t attempt, uint32_t unit) {
  const Held found = FindHeld(attempt, unit, {State::kSliced});
  if (found.slot == nullptr) return;
  SlotState& slot = *found.slot;
  HeldUnit& held = slot.held[found.unit];
  held.state = State::kLeaving;
  BufferPool& pool = slot.Pool(PoolName::Down(slot, found.unit));
  for (const HeldSum& sum : held.sums) {
    pool.free.push_back(sum.buffer);
    --slot.contributions_left;  // nobody need be told
    --slot.sums_left[found.unit];
  }
}

}  // namespace roundhouse::worker
