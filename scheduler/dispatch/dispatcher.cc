#include "scheduler/dispatch/dispatcher.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "base/log.h"
#include "base/turns.h"

namespace roundhouse {
namespace {

// Per unit of a guess, for placing slots until one has said what it takes.
constexpr double kGuessNs = 1e6;
// What slots say later changes that by as much at least, or not at all.
constexpr double kSameGuess = 1.25;
// Between the turns of slots that follow each other, so that one that is sent
// later fits between them.
constexpr uint64_t kTurnGap = uint64_t{1} << 20;

uint64_t FirstTurn(Priority priority) {
  switch (priority) {
    case Priority::kUrgent:
      return 0;
    case Priority::kNormal:
      return kNormalTurn;
    case Priority::kBackfill:
      break;
  }
  return kBackfillTurn;
}

bool GoesBefore(const SentWork::SentSlot& a, const SentWork::SentSlot& b) {
  if (a.priority != b.priority) return a.priority > b.priority;
  return FairShares::Before(a.share, b.share);
}

}  // namespace

Dispatcher::Dispatcher(const DispatcherOptions& options)
    : sent_(options),
      shares_{FairShares([this](JobId id) { return OutNs(id); }),
              FairShares([this](JobId id) { return OutNs(id); }),
              FairShares([this](JobId id) { return OutNs(id); })} {}

// --- jobs ---

void Dispatcher::AddJob(JobId job, const JobShape& shape, const JobOwner& owner,
                        Priority priority) {
  const bool added =
      jobs_
          .try_emplace(job, JobSteps(job, shape, sent_, actions_), priority,
                       owner)
          .second;
  ROUNDHOUSE_CHECK(added) << "job " << Number(job);
  SharesOf(priority).AddJob(job, owner);
}

void Dispatcher::SetPriority(JobId id, Priority priority) {
  Job& job = jobs_.at(id);
  if (job.priority == priority) return;
  SharesOf(job.priority).RemoveJob(id);
  if (job.priority == Priority::kBackfill) job.steps.WithdrawBackfill();
  job.priority = priority;
  SharesOf(priority).AddJob(id, job.owner);
  const auto next_turn = [&] {
    last_turn_ += kTurnGap;
    return last_turn_ + FirstTurn(priority);
  };
  for (const SentWork::SentSlot& slot :
       sent_.PutForward(id, priority, next_turn)) {
    job.steps.SetTurn(slot.slot, slot.turn);
  }
  Pump();
}

void Dispatcher::RemoveJob(JobId job) {
  sent_.DropJob(job);
  SharesOf(jobs_.at(job).priority).RemoveJob(job);
  jobs_.erase(job);
}

uint64_t Dispatcher::BeginStep(JobId job, const StepSpec& spec) {
  const uint64_t number = At(job).BeginStep(spec);
  Pump();
  return number;
}

std::optional<double> Dispatcher::Job::NsPerGuess() const {
  if (guess_amount <= 0) return std::nullopt;
  return guess_taken_ns / guess_amount;
}

void Dispatcher::Job::NoteGuess(double amount, double taken_ns) {
  guess_amount += amount;
  guess_taken_ns += taken_ns;
  const std::optional<double> now = NsPerGuess();
  if (!now.has_value()) return;
  const bool same = placing_ns.has_value() && *placing_ns < *now * kSameGuess &&
                    *now < *placing_ns * kSameGuess;
  if (!same) placing_ns = now;
}

double Dispatcher::OutNs(JobId id) const {
  return sent_.NsOf(id, jobs_.at(id).NsPerGuess().value_or(0));
}

void Dispatcher::SetWeights(const ShareWeights& weights) {
  for (FairShares& shares : shares_) shares.SetWeights(weights);
}

void Dispatcher::NoteUse(const DeviceCharge& use) {
  SharesOf(Priority::kNormal)
      .NoteUse(use.owner, static_cast<double>(use.device_ns));
  charged_(use);
}

std::vector<JobOwner> Dispatcher::Waiting() const {
  std::vector<JobOwner> owners;
  for (const auto& [id, job] : jobs_) {
    if (job.priority == Priority::kBackfill) continue;
    if (job.steps.NextSlot().has_value()) owners.push_back(job.owner);
  }
  return owners;
}

uint64_t Dispatcher::NextStepNumber(JobId job) const {
  return At(job).next_step_number();
}

void Dispatcher::AllowUpdates(JobId job, uint64_t step_number) {
  At(job).AllowUpdates(step_number);
  Pump();
}

void Dispatcher::SkipUpdates(JobId job, uint64_t step_number) {
  At(job).SkipUpdates(step_number);
  Pump();
}

void Dispatcher::HoldUpdatesAfter(JobId job,
                                  std::optional<uint64_t> step_number) {
  At(job).HoldUpdatesAfter(step_number);
  Pump();
}

void Dispatcher::HoldSlots(JobId job, StartedSlots started) {
  At(job).HoldSlots(started);
  Pump();
}

void Dispatcher::ReleaseSlots(JobId job) {
  At(job).ReleaseSlots();
  Pump();
}

void Dispatcher::Abandon(JobId job) {
  At(job).Abandon();
  Pump();
}

bool Dispatcher::Updating(JobId job) const { return At(job).Updating(); }

bool Dispatcher::Idle(JobId job) const { return At(job).Idle(); }

// --- devices and the host worker ---

void Dispatcher::DeviceUp(DeviceId device, const DeviceTraits& traits) {
  for (const SentWork::SentSlot& slot : sent_.DeviceUp(device, traits)) {
    At(slot.job).SendAgain(slot.slot);
  }
  SetDevices();
  Pump();
}

void Dispatcher::SetDevices() {
  for (FairShares& shares : shares_) {
    shares.SetDevices(std::max(1, sent_.live_device_count()));
  }
}

void Dispatcher::DeviceDown(DeviceId device) {
  sent_.DeviceDown(device);
  const std::vector<SentWork::SentSlot> slots = sent_.Slots(device);
  for (const SentWork::SentSlot& slot : slots) {
    At(slot.job).WorkerDied(slot.slot);
  }
  Pump();
}

void Dispatcher::DeviceLost(DeviceId device) {
  if (!sent_.DeviceLost(device)) return;
  SetDevices();
  Vacate(device);
}

void Dispatcher::DeviceLeaves(DeviceId device) {
  sent_.Leave(device);
  Vacate(device);
}

void Dispatcher::DeviceStays(DeviceId device) {
  sent_.Stay(device);
  Pump();
}

void Dispatcher::Vacate(DeviceId device) {
  for (auto& [id, job] : jobs_) job.steps.Vacate(device);
  Pump();
}

void Dispatcher::HostUp() {
  for (const RunHostOpAction& op : sent_.HostUp()) actions_.push_back(op);
  Pump();
}

void Dispatcher::HostDown() { sent_.HostDown(); }

// --- answers ---

void Dispatcher::SlotDone(SlotId slot, int64_t compute_ns) {
  for (auto& [id, job] : jobs_) {
    const auto cost = job.steps.SlotDone(slot, compute_ns);
    if (!cost.has_value()) continue;
    SharesOf(job.priority).NoteDone(id, static_cast<double>(compute_ns));
    charged_({job.owner, id, compute_ns});
    if (cost->guessed) {
      job.NoteGuess(cost->amount, static_cast<double>(compute_ns));
    }
    Pump();
    return;
  }
}

void Dispatcher::SlotStarted(SlotId slot) {
  for (auto& [id, job] : jobs_) {
    if (job.steps.SlotStarted(slot)) return;
  }
}

void Dispatcher::ContributionDown(SlotId slot, int unit) {
  for (auto& [id, job] : jobs_) {
    if (!job.steps.ContributionDown(slot, unit)) continue;
    PumpHostOps();  // No round ends by it, and no slot waits for it.
    return;
  }
}

void Dispatcher::SlotWithdrawn(SlotId slot) {
  for (auto& [id, job] : jobs_) {
    if (!job.steps.SlotWithdrawn(slot)) continue;
    Pump();
    return;
  }
}

void Dispatcher::HostOpDone(HostOpId op) {
  const std::optional<RunHostOpAction> action = sent_.HostOpDone(op);
  if (!action.has_value()) return;
  At(action->job).HostOpDone(*action);
  Pump();
}

std::vector<Action> Dispatcher::TakeActions() {
  return std::exchange(actions_, {});
}

// --- deciding ---

void Dispatcher::Pump() {
  for (auto& [id, job] : jobs_) job.steps.Settle();
  while (SendOneSlot()) {
  }
  PumpHostOps();
}

void Dispatcher::PumpHostOps() {
  while (sent_.MaySendHostOp() && SendOneHostOp()) {
  }
}

bool Dispatcher::SendOneSlot() {
  for (FairShares& shares : shares_) shares.NoteOut();
  std::optional<SentWork::SentSlot> first;
  DeviceId to{};
  for (const auto& [id, job] : jobs_) {
    auto next = job.steps.NextSlot();
    if (!next.has_value()) continue;
    next->priority = job.priority;
    next->ns = next->cost.amount;
    if (next->cost.guessed) next->ns *= job.placing_ns.value_or(kGuessNs);
    const auto device = sent_.Place(*next);
    if (!device.has_value()) continue;
    next->share = SharesOf(job.priority).TurnOf(id);
    if (first.has_value() && !GoesBefore(*next, *first)) continue;
    first = next;
    to = *device;
  }
  if (!first.has_value()) return false;
  first->turn = PlaceAmong(sent_.Slots(to), *first);
  SharesOf(first->priority).NoteSent(first->job);
  At(first->job).Send(*first, to);
  return true;
}

// The turn that the device is told: before those that it has of other jobs
// which would go later now.
uint64_t Dispatcher::PlaceAmong(const std::vector<SentWork::SentSlot>& sent,
                                const SentWork::SentSlot& slot) {
  std::vector<SentWork::SentSlot> others;
  std::copy_if(sent.begin(), sent.end(), std::back_inserter(others),
               [&](const SentWork::SentSlot& other) {
                 return other.priority == slot.priority;
               });
  std::sort(others.begin(), others.end(),
            [](const SentWork::SentSlot& a, const SentWork::SentSlot& b) {
              return a.turn < b.turn;
            });
  size_t at = others.size();
  while (at > 0 && others[at - 1].job != slot.job &&
         GoesBefore(slot, others[at - 1])) {
    --at;
  }
  if (at == others.size()) {
    last_turn_ += kTurnGap;
    return last_turn_ + FirstTurn(slot.priority);
  }
  const uint64_t after =
      at == 0 ? others[0].turn - kTurnGap : others[at - 1].turn;
  return after + (others[at].turn - after) / 2;
}

// Urgent jobs first, then in turns: one job's long updates do not hold back
// another's gathers for more than what is sent.
bool Dispatcher::SendOneHostOp() {
  const auto time_of = [this](const Job& job) -> int64_t& {
    return host_ops_time_[job.priority == Priority::kUrgent ? 1 : 0];
  };
  absl::InlinedVector<std::tuple<bool, int64_t, JobId>, 4> by_turn;
  for (const auto& [id, job] : jobs_) {
    by_turn.push_back({job.priority != Priority::kUrgent,
                       std::max(job.host_ops, time_of(job)), id});
  }
  std::sort(by_turn.begin(), by_turn.end());
  for (const auto& [later, host_ops, id] : by_turn) {
    Job& job = jobs_.at(id);
    if (!job.steps.SendHostOp()) continue;
    time_of(job) = host_ops;
    job.host_ops = host_ops + 1;
    return true;
  }
  return false;
}

}  // namespace roundhouse
