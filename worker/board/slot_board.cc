#include "worker/board/slot_board.h"

#include <utility>

#include "base/clock.h"
#include "base/status.h"

namespace roundhouse::worker {
namespace {

absl::Status SlotGivenUp() {
  return absl::CancelledError("the slot was given up");
}

}  // namespace

// --- main loop ---

absl::Status SlotBoard::Add(std::unique_ptr<SlotState> slot) {
  {
    MutexLock lock(mutex_);
    RETURN_IF_ERROR(table_.Add(std::move(slot)));
  }
  WakeAll();
  return absl::OkStatus();
}

absl::Status SlotBoard::AddSample(std::unique_ptr<SampleState> sample) {
  {
    MutexLock lock(mutex_);
    RETURN_IF_ERROR(table_.AddSample(std::move(sample)));
  }
  changed_.NotifyAll();
  return absl::OkStatus();
}

void SlotBoard::ForgetSample(uint64_t job) {
  {
    MutexLock lock(mutex_);
    table_.ForgetSample(job);
  }
  WakeAll();
}

void SlotBoard::Withdraw(uint64_t attempt) {
  {
    MutexLock lock(mutex_);
    SlotState* const slot = table_.Find(attempt);
    if (slot != nullptr) slot->Withdraw();
  }
  WakeAll();
}

void SlotBoard::SetTurn(uint64_t attempt, uint64_t turn) {
  {
    MutexLock lock(mutex_);
    SlotState* const slot = table_.Find(attempt);
    if (slot != nullptr) slot->turn = turn;
  }
  changed_.NotifyAll();
}

void SlotBoard::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_.store(true);
  }
  turns_.Stop();
  WakeAll();
}

DeviceMemory SlotBoard::memory() const {
  MutexLock lock(mutex_);
  return table_.memory();
}

// --- compute ---

int64_t SlotBoard::AwaitWatched(WaitWatch& watch, Slot* slot,
                                absl::FunctionRef<bool()> done) {
  const auto over = [&] {
    return stopping() || (slot != nullptr && slot->abandoned) || done();
  };
  {
    MutexLock lock(mutex_);
    if (over()) return 0;
  }
  watch.Begin();
  const int64_t began_ns = MonotonicNs();
  {
    MutexLock lock(mutex_);
    while (!over()) AwaitChange(slot);
  }
  watch.End();
  return MonotonicNs() - began_ns;
}

SlotBoard::Work SlotBoard::NextToCompute(WaitWatch& watch) {
  SlotTable::Work taken;
  AwaitWatched(watch, nullptr, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!table_.TakeWork(taken)) return false;
    if (taken.sample != nullptr) sample_failure_ = absl::OkStatus();
    return true;
  });
  Work work{.slot = taken.slot,
            .sample = std::move(taken.sample),
            .cache = std::move(taken.cache)};
  if (taken.slot != nullptr) work.fills_bubble = taken.slot->fills_bubble;
  return work;
}

SlotBoard::Work SlotBoard::NextBackfill() {
  MutexLock lock(mutex_);
  Work work;
  while (!stopping() && (work.slot = table_.TakeBackfill()) == nullptr) {
    changed_.Wait(mutex_);
  }
  return work;
}

bool SlotBoard::HasOthers() const {
  MutexLock lock(mutex_);
  return table_.HasOthers();
}

void SlotBoard::EndCompute(Slot& slot, absl::Status status,
                           ComputeRecord record) {
  {
    MutexLock lock(mutex_);
    StateOf(slot).EndCompute(std::move(status), std::move(record));
  }
  WakeAll();
}

bool SlotBoard::GivenUp(Slot& slot) {
  if (Over(slot)) return true;
  if (!wire::Cancelled(doorbell_, slot.attempt)) return false;
  {
    MutexLock lock(mutex_);
    StateOf(slot).Withdraw();
  }
  WakeAll();
  return true;
}

void SlotBoard::AwaitChange(Slot* slot) {
  if (slot != nullptr &&
      SlotTable::RefusedLately(StateOf(*slot), MonotonicNs())) {
    changed_.WaitUntil(mutex_, CondVar::DeadlineIn(kAskAgainEvery));
  } else {
    changed_.Wait(mutex_);
  }
}

absl::StatusOr<SlotBoard::Arrived> SlotBoard::AwaitUpload(
    Slot& slot, const UploadName& name, WaitWatch& watch, int64_t* waited_ns) {
  Arrived arrived;
  const auto there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const Upload& upload = UploadOf(StateOf(slot), name);
    if (upload.arrival != Arrival::kThere) return false;
    arrived = {.buffer = upload.buffer,
               .published_ns = upload.published.reached_ns,
               .granted_ns = upload.refused ? upload.granted_ns : 0,
               .there_ns = upload.there_ns};
    return true;
  };
  *waited_ns += AwaitWatched(watch, &slot, there);
  if (Over(slot)) return SlotGivenUp();
  return arrived;
}

int64_t SlotBoard::GatherBegunNs(Slot& slot) {
  MutexLock lock(mutex_);
  return StateOf(slot).gather_begun.reached_ns;
}

void SlotBoard::ReleaseUploads(Slot& slot, size_t micro_batch) {
  {
    MutexLock lock(mutex_);
    StateOf(slot).ReleaseUploads(micro_batch);
  }
  WakeAll();
}

absl::StatusOr<SlotBoard::Taken> SlotBoard::AwaitBuffer(Slot& slot,
                                                        const PoolName& name,
                                                        WaitWatch& watch,
                                                        int64_t* waited_ns) {
  Taken taken;
  absl::Status status;
  const auto has = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    BufferPool& pool = StateOf(slot).Pool(name);
    auto buffer = table_.TryTake(StateOf(slot), pool, &taken.fresh);
    status = buffer.status();
    if (!buffer.ok()) return true;
    taken.buffer = *buffer;
    if (taken.buffer != nullptr) return true;
    taken.awaited_download |= pool.all.size() >= pool.need.count;
    return false;
  };
  *waited_ns += AwaitWatched(watch, &slot, has);
  RETURN_IF_ERROR(status);
  if (Over(slot)) return SlotGivenUp();
  return taken;
}

void SlotBoard::GiveBuffer(Slot& slot, const PoolName& pool,
                           DeviceBuffer* buffer) {
  {
    MutexLock lock(mutex_);
    StateOf(slot).Pool(pool).free.push_back(buffer);
  }
  WakeAll();
}

void SlotBoard::SettleReplayedOutput(Slot& slot, size_t output) {
  SettleOutput(slot, output);
  WakeAll();
}

bool SlotBoard::HoldSum(Slot& slot, size_t unit, HeldSum sum) {
  bool all = false;
  {
    MutexLock lock(mutex_);
    HeldUnit& held = StateOf(slot).held[unit];
    held.sums.push_back(std::move(sum));
    all = held.sums.size() == slot.plan.units[unit].contributions.size();
    if (all) {
      held.state = HeldUnit::State::kHeld;
      held.since_ns = MonotonicNs();
    }
  }
  WakeAll();
  return all;
}

void SlotBoard::EndSample(SampleCache cache) {
  {
    MutexLock lock(mutex_);
    table_.EndSample(std::move(cache));
  }
  WakeAll();
}

void SlotBoard::BeginSampleCopy() {
  MutexLock lock(mutex_);
  ++sample_copies_;
}

void SlotBoard::EndSampleCopy(std::atomic<bool>& there, absl::Status status) {
  {
    MutexLock lock(mutex_);
    if (status.ok()) {
      there.store(true);
    } else if (sample_failure_.ok()) {
      sample_failure_ = std::move(status);
    }
    --sample_copies_;
  }
  WakeAll();
}

void SlotBoard::TakeBackSampleCopy() {
  MutexLock lock(mutex_);
  --sample_copies_;
}

absl::Status SlotBoard::AwaitSampleCopy(const std::atomic<bool>& there) {
  MutexLock lock(mutex_);
  while (!stopping() && sample_failure_.ok() && !there) changed_.Wait(mutex_);
  return stopping() ? absl::CancelledError("the worker stops")
                    : sample_failure_;
}

void SlotBoard::AwaitSampleCopies() {
  MutexLock lock(mutex_);
  while (sample_copies_ > 0) changed_.Wait(mutex_);
}

// --- copies ---

void SlotBoard::BeginCopy(Slot& slot) {
  MutexLock lock(mutex_);
  ++StateOf(slot).copies_in_flight;
}

void SlotBoard::EndUpload(Slot& slot, const UploadName& name,
                          absl::Status status) {
  {
    MutexLock lock(mutex_);
    SlotState& state = StateOf(slot);
    --state.copies_in_flight;
    if (status.ok()) {
      Upload& upload = UploadOf(state, name);
      upload.arrival = Arrival::kThere;
      upload.there_ns = MonotonicNs();
    } else {
      state.FailUnlessAbandoned(std::move(status));
    }
  }
  WakeAll();
}

void SlotBoard::EndDownload(Slot& slot, const PoolName& pool,
                            DeviceBuffer* buffer, const CopiedPart& part,
                            absl::Status status) {
  {
    MutexLock lock(mutex_);
    SlotState& state = StateOf(slot);
    --state.copies_in_flight;
    state.Pool(pool).free.push_back(buffer);
    if (!status.ok()) {
      state.FailUnlessAbandoned(std::move(status));
    } else if (part.kind == CopiedPart::Kind::kOutput) {
      state.outputs[part.index] = OutputState::kCopied;
    } else {
      state.NoteSum(part.index);
    }
  }
  WakeAll();
}

void SlotBoard::TakeBackCopy(Slot& slot) {
  {
    MutexLock lock(mutex_);
    --StateOf(slot).copies_in_flight;
  }
  WakeAll();
}

void SlotBoard::Fail(Slot& slot, absl::Status why) {
  {
    MutexLock lock(mutex_);
    StateOf(slot).Fail(std::move(why));
  }
  WakeAll();
}

void SlotBoard::FailUnlessAbandoned(Slot& slot, absl::Status why) {
  {
    MutexLock lock(mutex_);
    StateOf(slot).FailUnlessAbandoned(std::move(why));
  }
  WakeAll();
}

// --- held sums ---

TakenSums SlotBoard::TakeSumsToDownload(uint64_t attempt, uint32_t unit) {
  MutexLock lock(mutex_);
  return table_.TakeSumsToDownload(attempt, unit);
}

TakenSums SlotBoard::TakeSumsToExchange(uint64_t attempt, uint32_t unit) {
  MutexLock lock(mutex_);
  return table_.TakeSumsToExchange(attempt, unit);
}

std::vector<TakenSums> SlotBoard::TakeSumsHeldTooLong(
    int64_t now_ns, const HoldLimits& limits) {
  MutexLock lock(mutex_);
  return table_.TakeSumsHeldTooLong(now_ns, limits);
}

void SlotBoard::ReturnSums(TakenSums taken, HeldUnit::State state) {
  {
    MutexLock lock(mutex_);
    table_.ReturnSums(StateOf(*taken.slot), taken.unit, std::move(taken.sums),
                      state);
  }
  WakeAll();
}

void SlotBoard::ReleaseSlicedSums(uint64_t attempt, uint32_t unit) {
  {
    MutexLock lock(mutex_);
    table_.ReleaseSlicedSums(attempt, unit);
  }
  WakeAll();
}

// --- feeder ---

void SlotBoard::LookAtSlots(const UploadFeed& feed, FeedStep& step) {
  MutexLock lock(mutex_);
  feed.Look(table_, step);
}

void SlotBoard::SettleOutput(Slot& slot, size_t output) {
  MutexLock lock(mutex_);
  StateOf(slot).outputs[output] = OutputState::kSettled;
}

void SlotBoard::WakeAll() {
  changed_.NotifyAll();
  turns_.Wake();
  RingFeeder();
}

void SlotBoard::RingFeeder() {
  rung_.store(true);
  wire::Ring(doorbell_);
}

}  // namespace roundhouse::worker
