#include "server/steps/step_book.h"

#include <utility>
#include <variant>

#include "base/clock.h"
#include "base/log.h"
#include "server/loop/event_loop.h"
#include "server/steps/commands.h"

namespace roundhouse {

StepBook::StepBook(const Surroundings& around, JobId job, const JobOwner& owner,
                   Priority priority)
    : around_(around),
      job_(job),
      owner_(owner),
      priority_(priority),
      wide_sums_(around.pool, around.dispatch) {}

StepBook::~StepBook() {
  if (open()) around_.dispatch.Leave(job_);
  around_.pool.Forget(this);
}

void StepBook::Configure(WorkerId worker) {
  WorkerPool& pool = around_.pool;
  if (worker == pool.FilesWorker() || !pool.up(worker)) return;
  pool.Send(worker, wire::ConfigureJob{Number(job_), state().layout_offset()},
            worker == pool.HostWorker() ? this : nullptr);
}

void StepBook::Open(StepMeasures& measures) {
  around_.dispatch.Add(job_, around_.memory.Shape(), {owner_, priority_}, this);
  measures_ = &measures;
}

void StepBook::NoteReady() {
  comes_ = idle();
  const bool urgent = priority_ == Priority::kUrgent && !comes_;
  urgent_since_ns_ = urgent ? MonotonicNs() : 0;
}

void StepBook::SetPriority(Priority priority) {
  const bool another = std::exchange(priority_, priority) != priority;
  if (!open()) return;
  if (another) NoteReady();
  dispatcher().SetPriority(job_, priority);
  around_.dispatch.CarryOut();
}

void StepBook::HoldSlots(StartedSlots started) {
  urgent_since_ns_ = 0;
  dispatcher().HoldSlots(job_, started);
}

void StepBook::ReleaseSlots() {
  dispatcher().ReleaseSlots(job_);
  NoteReady();
}

void StepBook::Close() {
  WorkerPool& pool = around_.pool;
  for (int i = 0; i < pool.device_count() + 1; ++i) {
    const WorkerId worker = static_cast<WorkerId>(i);
    if (pool.up(worker)) pool.Send(worker, wire::ReleaseJob{Number(job_)});
  }
  pool.Forget(this);
  if (open()) around_.dispatch.Remove(job_);
  measures_ = nullptr;
}

// --- beginning and ending ---

uint64_t StepBook::Enter(StepEntry entry) {
  const uint64_t number = dispatcher().NextStepNumber(job_);
  entry.begun_ns = MonotonicNs();
  steps_.emplace(number, std::move(entry));
  return number;
}

void StepBook::Begin(uint64_t number, const StepSpec& spec) {
  ROUNDHOUSE_CHECK(dispatcher().BeginStep(job_, spec) == number);
  if (comes_) NoteReady();
  around_.dispatch.CarryOut();
}

// A later step may have begun that will be saved too: the first one that is not
// on disk yet decides.
void StepBook::HoldForNextSave() {
  std::optional<uint64_t> after;
  for (const auto& [number, entry] : steps_) {
    if (!entry.save_after) continue;
    after = number;
    break;
  }
  dispatcher().HoldUpdatesAfter(job_, after);
}

void StepBook::EndStep(const StepDoneAction& action) {
  Publish();
  const auto found = steps_.find(action.step_number);
  const StepEntry entry = std::move(found->second);
  steps_.erase(found);
  wide_sums_.Forget(action.step_number);
  if (entry.data.train) around_.telemetry.OnStepDone(entry.data.step);
  around_.owner.OnStepDone(entry);
}

void StepBook::GiveUp() {
  Publish();
  steps_.clear();
  out_slots_.clear();
  wide_sums_.Clear();
  around_.owner.OnQuiet();
}

void StepBook::Publish() {
  for (const auto& [out, done] : std::exchange(untold_slots_, {})) {
    if (open()) {
      measures_->ObserveSlot(out.action.kind,
                             dispatcher().DeviceSpeed(out.device), done);
    }
    NoteRecovery(out.device, done.started_ns);
    around_.telemetry.OnSlot(out.device, out.action.kind, done);
  }
  const WideSums::Counts sums = wide_sums_.TakeCounts();
  if (sums.exchanged + sums.failed > 0) {
    around_.telemetry.OnSumExchanges(sums.exchanged, sums.failed);
  }
  for (const StepReport& report : std::exchange(untold_steps_, {})) {
    around_.owner.OnStep(report);
  }
}

// --- the dispatcher's actions ---

void StepBook::Execute(const Action& action, const Enabler& by) {
  if (const auto* slot = std::get_if<RunSlotAction>(&action)) {
    SendSlot(*slot, by);
  } else if (const auto* back = std::get_if<WithdrawSlotAction>(&action)) {
    Withdraw(*back);
  } else if (const auto* turn = std::get_if<SetTurnAction>(&action)) {
    SetTurn(*turn);
  } else if (const auto* op = std::get_if<RunHostOpAction>(&action)) {
    SendHostOp(*op);
  } else if (const auto* reduced = std::get_if<StepReducedAction>(&action)) {
    Publish();
    around_.owner.OnStepReduced(reduced->step_number,
                                steps_.at(reduced->step_number));
  } else if (const auto* done = std::get_if<StepDoneAction>(&action)) {
    EndStep(*done);
  } else {
    GiveUp();
  }
}

void StepBook::FillIfNeeded(StepEntry& entry, int round, int set) {
  RoundData& data = entry.data.rounds[round];
  if (data.filled) return;
  FillRound(data, *entry.data.dataset, set, buffers(),
            around_.memory.arena().arena());
  data.filled = true;
}

void StepBook::SendSlot(const RunSlotAction& action, const Enabler& by) {
  StepEntry& entry = steps_.at(action.place.step_number);
  FillIfNeeded(entry, action.place.round, action.place.buffer_set);
  OutSlot& out = out_slots_[action.slot];
  const bool again = out.attempt != 0;
  if (out.lost) around_.telemetry.OnSlotReplayed(out.device);
  out.lost = false;
  out.device = action.device;
  out.action = action;
  out.enabled_ns = by.ns;
  wire::RunSlot command = SlotCommand(action, entry.data, state(), buffers());
  command.enabled_ns = by.ns;
  command.enabled_by = by.cause;
  command.again = again;
  wide_sums_.OnSend(Now(), action, again, command);
  around_.telemetry.OnSlotCommand(command);
  out.attempt = around_.pool.Send(around_.pool.DeviceWorker(action.device),
                                  std::move(command), this);
  ROUNDHOUSE_CHECK(out.attempt != 0) << "device " << Number(action.device);
  around_.telemetry.OnSlotSent(out.attempt, action, entry.data.step);
}

void StepBook::Withdraw(const WithdrawSlotAction& action) {
  // A slot that failed has left its worker already.
  if (failed_slots_.erase(action.slot) != 0) {
    dispatcher().SlotWithdrawn(action.slot);
    return;
  }
  around_.pool.Withdraw(action.device, out_slots_.at(action.slot).attempt);
  wide_sums_.OnGone(Now(), action.slot);
}

void StepBook::SetTurn(const SetTurnAction& action) {
  const WorkerId worker = around_.pool.DeviceWorker(action.device);
  if (!around_.pool.up(worker)) return;
  around_.pool.Send(
      worker, wire::SetTurn{out_slots_.at(action.slot).attempt, action.turn},
      nullptr);
}

void StepBook::SendHostOp(const RunHostOpAction& action) {
  StepEntry& entry = steps_.at(action.step_number);
  if (action.kind == HostOpKind::kGather) {
    FillIfNeeded(entry, action.round, action.buffer_set);
  }
  const uint64_t attempt = around_.pool.Send(
      around_.pool.HostWorker(),
      HostCommand(action, entry.data, state(), buffers()), this);
  out_host_ops_[action.op] = {action, attempt};
}

void StepBook::OnPeersOver() { wide_sums_.OnPeersOver(Now()); }

}  // namespace roundhouse
