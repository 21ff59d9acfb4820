// StepBook: the workers' answers.
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "server/loop/event_loop.h"
#include "server/steps/commands.h"
#include "server/steps/step_book.h"

namespace roundhouse {

void StepBook::OnReply(WorkerId worker, const wire::Message& message) {
  const wire::Body& body = message.body;
  if (const auto* done = std::get_if<wire::SlotDone>(&body)) {
    OnSlotDone(worker, message.attempt, *done);
  } else if (const auto* sums = std::get_if<wire::SumsDown>(&body)) {
    OnSumsDown(worker, message.attempt, *sums);
  } else if (std::holds_alternative<wire::SumsHeld>(body) ||
             std::holds_alternative<wire::SliceDown>(body)) {
    OnHeldSums(worker, message.attempt, body);
  } else if (const auto* op = std::get_if<wire::HostOpDone>(&body)) {
    OnHostOpDone(*op);
  } else if (const auto* out = std::get_if<wire::Withdrawn>(&body)) {
    OnWithdrawn(message.attempt, static_cast<SlotId>(out->slot));
  } else if (const auto* started = std::get_if<wire::SlotStarted>(&body)) {
    OnSlotStarted(message.attempt, *started);
  } else if (const auto* failed = std::get_if<wire::Failed>(&body)) {
    OnFailed(worker, message.attempt, *failed);
  }
  if (open()) around_.dispatch.CarryOut();
}

void StepBook::OnLost(WorkerId worker, uint64_t attempt, const std::string&) {
  if (!open()) return;
  for (auto& [id, out] : out_slots_) {
    if (out.attempt != attempt ||
        around_.pool.DeviceWorker(out.device) != worker) {
      continue;
    }
    out.lost = true;
    wide_sums_.OnGone(Now(), id);
    down_since_ns_.emplace(out.device, MonotonicNs());
  }
}

void StepBook::OnWithdrawn(uint64_t attempt, SlotId id) {
  const auto slot = out_slots_.find(id);
  if (slot == out_slots_.end() || slot->second.attempt != attempt) return;
  if (open()) dispatcher().SlotWithdrawn(id);
}

void StepBook::OnSlotStarted(uint64_t attempt,
                             const wire::SlotStarted& started) {
  const auto slot = out_slots_.find(static_cast<SlotId>(started.slot));
  if (slot == out_slots_.end() || slot->second.attempt != attempt) return;
  if (open()) dispatcher().SlotStarted(slot->first);
  if (urgent_since_ns_ != 0) {
    const int64_t waited_ns = started.time_ns - urgent_since_ns_;
    // One that had begun before it could go is not told late.
    if (waited_ns >= 0) {
      around_.telemetry.OnUrgentBegins(static_cast<double>(waited_ns) * 1e-9);
      urgent_since_ns_ = 0;
    }
  }
  const int64_t enabled_ns = slot->second.enabled_ns;
  if (enabled_ns == 0) return;
  around_.telemetry.OnDispatchLatency(
      static_cast<double>(started.received_ns - enabled_ns) * 1e-9);
}

// Null: its answers are not waited for.
OutSlot* StepBook::FindOut(WorkerId worker, uint64_t attempt, SlotId id) {
  const auto found = out_slots_.find(id);
  if (found == out_slots_.end() || found->second.attempt != attempt ||
      around_.pool.DeviceWorker(found->second.device) != worker) {
    return nullptr;
  }
  return &found->second;
}

void StepBook::OnSumsDown(WorkerId worker, uint64_t attempt,
                          const wire::SumsDown& sums) {
  const auto id = static_cast<SlotId>(sums.slot);
  const OutSlot* const slot = FindOut(worker, attempt, id);
  if (slot == nullptr || !open()) return;
  for (const uint32_t unit : sums.units) {
    wide_sums_.OnDown(Now(), *slot, static_cast<int>(unit));
    dispatcher().ContributionDown(id,
                                  state().SummedUnit(static_cast<int>(unit)));
  }
  CarryOut({sums.time_ns, wire::WaitCause::kDependency});
}

// A wide slot's part holds its sums, or has exchanged them.
void StepBook::OnHeldSums(WorkerId worker, uint64_t attempt,
                          const wire::Body& body) {
  const auto* const held = std::get_if<wire::SumsHeld>(&body);
  const auto* const slice = std::get_if<wire::SliceDown>(&body);
  const uint64_t number = held != nullptr ? held->slot : slice->slot;
  const OutSlot* const slot =
      FindOut(worker, attempt, static_cast<SlotId>(number));
  if (slot == nullptr || !open()) return;
  if (held != nullptr) return wide_sums_.OnSumsHeld(Now(), *slot, *held);
  wide_sums_.OnSliceDown(Now(), *slot, *slice);
  CarryOut({slice->time_ns, wire::WaitCause::kDependency});
}

void StepBook::OnSlotDone(WorkerId worker, uint64_t attempt,
                          const wire::SlotDone& done) {
  const SlotId id = static_cast<SlotId>(done.slot);
  OutSlot* const found = FindOut(worker, attempt, id);
  if (found == nullptr) return;
  // Committed from here on: the ledger first, then everything that follows.
  state().CommitToLedger(done.slot);
  const OutSlot out = *found;
  out_slots_.erase(id);
  if (open()) wide_sums_.OnDone(Now(), out);
  const auto entry = steps_.find(out.action.place.step_number);
  if (entry != steps_.end()) {
    entry->second.experts.Add(out.action, entry->second.data,
                              state().options().model, buffers(),
                              around_.memory.arena().arena());
  }
  bool finite = true;
  // One for each of the slot's share of the round's micro-batches.
  auto micro_batch = static_cast<uint32_t>(out.action.micro_batches.begin);
  for (const wire::MicroBatchResult& result : done.results) {
    if (entry == steps_.end()) break;
    entry->second.results[{out.action.place.round, micro_batch++}] = result;
    finite &= result.finite == wire::Finite::kYes;
  }
  untold_slots_.push_back({out, done});
  dispatcher().SlotDone(id, done.compute_ns);
  // After the dispatcher knows that the slot is done: failing withdraws those
  // that are out.
  if (!finite) around_.owner.OnLossNotFinite(entry->second);
  CarryOut({done.ended_ns, wire::WaitCause::kDependency});
}

void StepBook::OnHostOpDone(const wire::HostOpDone& done) {
  const HostOpId id = static_cast<HostOpId>(done.operation);
  const auto found = out_host_ops_.find(id);
  if (found == out_host_ops_.end() || !open()) return;
  const RunHostOpAction action = found->second.action;
  out_host_ops_.erase(found);
  const auto entry = steps_.find(action.step_number);
  if (entry != steps_.end()) NoteHostOp(entry->second, action, done);
  dispatcher().HostOpDone(id);
  CarryOut({done.ended_ns, action.kind == HostOpKind::kGather
                               ? wire::WaitCause::kData
                               : wire::WaitCause::kOptimizer});
}

void StepBook::NoteHostOp(StepEntry& entry, const RunHostOpAction& action,
                          const wire::HostOpDone& done) {
  const bool gather = action.kind == HostOpKind::kGather;
  around_.telemetry.OnHostOp(
      {.kind = action.kind,
       .unit = gather ? 0 : state().TrainedUnit(action.unit),
       .step = entry.data.step,
       .started_ns = done.started_ns,
       .ended_ns = done.ended_ns});
  if (gather) return;
  const int64_t spent = done.ended_ns - done.started_ns;
  const int unit = state().TrainedUnit(action.unit);
  const uint64_t elements = state().layout(unit).element_count;
  RunHostOpAction read = action;
  DType dtype = buffers().contributions().dtype();
  if (action.reduces() &&
      entry.data.rounds[action.round].sliced.count(unit) != 0) {
    read.blocks.resize(1);  // slices: one sum in fp32
    dtype = DType::kF32;
  }
  measures_->ObserveHostOp(read, static_cast<int64_t>(elements), dtype, spent);
  int64_t& spent_ns = entry.unit_ns[action.unit];
  spent_ns += spent;
  const bool updates = action.kind == HostOpKind::kUpdate;
  const bool sums = updates
                        ? action.reduces()
                        : action.last_round && (action.unit > 0 || action.rows);
  if (sums) entry.unit_norms[action.unit] = done.norm_squared;
  if (!updates) return;
  around_.telemetry.OnUnitUpdated(static_cast<double>(spent_ns) * 1e-9);
}

void StepBook::NoteRecovery(DeviceId device, int64_t started_ns) {
  const auto down = down_since_ns_.find(device);
  // One that it had done before it died may be told of only now.
  if (down == down_since_ns_.end() || started_ns < down->second) return;
  const int64_t down_ns = started_ns - down->second;
  down_since_ns_.erase(down);
  around_.telemetry.OnRecovered(device, static_cast<double>(down_ns) * 1e-9);
}

void StepBook::OnFailed(WorkerId worker, uint64_t attempt,
                        const wire::Failed& failed) {
  if (worker == around_.pool.HostWorker()) {
    OnHostFailed(attempt, failed);
    return;
  }
  OnSlotFailed(worker, attempt, failed);
}

void StepBook::OnHostFailed(uint64_t attempt, const wire::Failed& failed) {
  const HostOpId op = static_cast<HostOpId>(failed.id);
  const auto found = out_host_ops_.find(op);
  // Else it could not be told of the job.
  const bool operation =
      found != out_host_ops_.end() && found->second.attempt == attempt;
  // What it was computing is lost with the job.
  around_.owner.OnWorkerFailed(JobReason::kInternal,
                               absl::StrCat("host worker: ", failed.text));
  if (operation && open()) {
    out_host_ops_.erase(op);
    dispatcher().HostOpDone(op);
  }
}

void StepBook::OnSlotFailed(WorkerId worker, uint64_t attempt,
                            const wire::Failed& failed) {
  const auto slot = out_slots_.find(static_cast<SlotId>(failed.id));
  if (slot == out_slots_.end() || slot->second.attempt != attempt) return;
  const SlotId id = slot->first;
  const bool exhausted = static_cast<absl::StatusCode>(failed.code) ==
                         absl::StatusCode::kResourceExhausted;
  failed_slots_.insert(id);
  if (open()) wide_sums_.OnGone(Now(), id);
  around_.telemetry.OnSlotFailed(slot->second.device);
  around_.owner.OnWorkerFailed(
      exhausted ? JobReason::kDeviceMemory : JobReason::kInternal,
      absl::StrCat("device ", Number(worker), ": ", failed.text));
  // When the job was stopping already, the slot has been asked for: no other
  // answer follows.
  if (open() && failed_slots_.erase(id) != 0) {
    dispatcher().SlotWithdrawn(id);
  }
}

}  // namespace roundhouse
