#include "scheduler/dispatch/dispatcher.h"

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "base/log.h"

namespace roundhouse {
namespace {

// Per unit of a guess, for placing slots until one has said what it takes.
constexpr double kGuessNs = 1e6;
// What slots say later changes that by as much at least, or not at all.
constexpr double kSameGuess = 1.25;

}  // namespace

Dispatcher::Dispatcher(const DispatcherOptions& options) : sent_(options) {}

// --- jobs ---

void Dispatcher::AddJob(JobId job, const JobShape& shape, JobClass job_class) {
  const bool added =
      jobs_.try_emplace(job, JobSteps(job, shape, sent_, actions_), job_class)
          .second;
  ROUNDHOUSE_CHECK(added) << "job " << Number(job);
}

void Dispatcher::RemoveJob(JobId job) {
  sent_.DropJob(job);
  jobs_.erase(job);
}

uint64_t Dispatcher::BeginStep(JobId job, const StepSpec& spec) {
  ComeBack(job);
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

double Dispatcher::TurnOf(JobId id) const {
  const Job& job = jobs_.at(id);
  return job.served_ns + sent_.NsOf(id, job.NsPerGuess().value_or(0));
}

std::optional<double> Dispatcher::LowestTurn(JobClass job_class) const {
  std::optional<double> lowest;
  for (const auto& [id, job] : jobs_) {
    if (job.away || job.job_class != job_class) continue;
    lowest = std::min(lowest.value_or(TurnOf(id)), TurnOf(id));
  }
  return lowest;
}

void Dispatcher::NoteAway() {
  for (auto& [id, job] : jobs_) {
    if (job.away || !(job.steps.Idle() || job.steps.holds_slots())) continue;
    job.away = true;
    job.others_turn = LowestTurn(job.job_class);
  }
}

// What the others got meanwhile it is not owed; what it was behind before, it
// still is.
void Dispatcher::ComeBack(JobId id) {
  Job& job = jobs_.at(id);
  if (!job.away) return;
  if (const auto others = LowestTurn(job.job_class); others.has_value()) {
    job.served_ns =
        job.others_turn.has_value()
            ? job.served_ns + std::max(0.0, *others - *job.others_turn)
            : std::max(job.served_ns, *others);
  }
  int64_t host_ops = job.host_ops;
  for (const auto& [other_id, other] : jobs_) {
    if (!other.away) host_ops = std::max(host_ops, other.host_ops);
  }
  job.host_ops = host_ops;
  job.away = false;
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

void Dispatcher::HoldSlots(JobId job) {
  At(job).HoldSlots();
  Pump();
}

void Dispatcher::ReleaseSlots(JobId job) {
  if (!At(job).Idle()) ComeBack(job);
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
  Pump();
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
  const int live = sent_.live_device_count();
  for (const SentWork::SentSlot& slot : sent_.DeviceLost(device)) {
    At(slot.job).Unplace(slot.slot);
  }
  if (sent_.live_device_count() == live) return;  // It has never been up.
  for (auto& [id, job] : jobs_) job.steps.WithdrawAll();
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
    job.served_ns += static_cast<double>(compute_ns);
    if (cost->guessed) {
      job.NoteGuess(cost->amount, static_cast<double>(compute_ns));
    }
    Pump();
    return;
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
  NoteAway();
  while (SendOneSlot()) {
  }
  PumpHostOps();
}

void Dispatcher::PumpHostOps() {
  while (sent_.MaySendHostOp() && SendOneHostOp()) {
  }
}

bool Dispatcher::SendOneSlot() {
  const bool normal_jobs =
      std::any_of(jobs_.begin(), jobs_.end(), [](const auto& entry) {
        return entry.second.job_class == JobClass::kNormal &&
               !entry.second.away;
      });
  using Rank = std::pair<JobClass, double>;
  std::optional<Rank> lowest;
  SentWork::SentSlot slot;
  DeviceId to{};
  for (const auto& [id, job] : jobs_) {
    auto next = job.steps.NextSlot();
    if (!next.has_value()) continue;
    next->job_class = job.job_class;
    next->ns = next->cost.amount;
    if (next->cost.guessed) next->ns *= job.placing_ns.value_or(kGuessNs);
    const auto device = sent_.Place(*next, normal_jobs);
    if (!device.has_value()) continue;
    const Rank rank = {job.job_class, TurnOf(id)};
    if (lowest.has_value() && rank >= *lowest) continue;
    lowest = rank;
    slot = *next;
    to = *device;
  }
  if (!lowest.has_value()) return false;
  slot.turn = static_cast<uint64_t>(lowest->second);
  if (slot.job_class == JobClass::kBackfill) slot.turn += kBackfillTurn;
  At(slot.job).Send(slot, to);
  return true;
}

// In turns: one job's long updates do not hold back another's gathers for more
// than what is sent.
bool Dispatcher::SendOneHostOp() {
  absl::InlinedVector<std::pair<int64_t, JobId>, 4> by_turn;
  for (const auto& [id, job] : jobs_) by_turn.push_back({job.host_ops, id});
  std::sort(by_turn.begin(), by_turn.end());
  for (const auto& [host_ops, id] : by_turn) {
    Job& job = jobs_.at(id);
    if (!job.steps.SendHostOp()) continue;
    ++job.host_ops;
    return true;
  }
  return false;
}

}  // namespace roundhouse
