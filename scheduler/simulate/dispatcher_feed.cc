#include "scheduler/simulate/dispatcher_feed.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/log.h"
#include "scheduler/simulate/device_memory.h"

namespace roundhouse {
namespace {

JobId IdOf(int job) { return static_cast<JobId>(job + 1); }
int IndexOf(JobId job) { return static_cast<int>(Number(job)) - 1; }

std::vector<MicroBatchCost> LayerCosts(const ModelCosts& costs) {
  std::vector<MicroBatchCost> layers;
  for (int layer = 0; layer <= costs.head(); ++layer) {
    const auto forward_ns = static_cast<double>(costs.ForwardNs(layer));
    // A fused part runs a block forward once, a backward part recomputes it.
    layers.push_back({forward_ns, forward_ns + static_cast<double>(
                                                   costs.BackwardNs(layer))});
  }
  return layers;
}

bool Stale(const FedJob& job) { return IsStale(job.rounds.updates); }

}  // namespace

RowGradient RowGradientOf(const ModelCosts& costs) {
  bool trains_layers = false;
  for (int layer = 0; layer <= costs.head(); ++layer) {
    trains_layers = trains_layers || costs.GradientBytes(layer) > 0;
  }
  // Where nothing trains the dispatcher is told that all does.
  return TrainsEmbedding(costs) || !trains_layers ? RowGradient::kRead
                                                  : RowGradient::kUnread;
}

DispatcherFeed::DispatcherFeed(const std::vector<FedJob>& jobs,
                               const Machine& machine,
                               const DispatcherFeedOptions& options)
    : machine_(machine),
      options_(options),
      job_slots_(OptionsFor(jobs).max_job_slots),
      dispatcher_(OptionsFor(jobs)),
      waiting_(machine.devices.size(),
               std::vector<std::deque<Waiting>>(jobs.size())),
      uncomputed_(machine.devices.size(), std::vector<int>(jobs.size())) {
  int first_number = 0;
  for (const FedJob& job : jobs) {
    AddJob(job, first_number);
    first_number +=
        static_cast<int>(jobs_.back().parts.size()) * job.rounds.count();
  }
  dispatcher_.HostUp();
  for (int d = 0; d < machine.device_count(); ++d) {
    const SimulatedDevice& device = machine.devices[d];
    dispatcher_.DeviceUp(static_cast<DeviceId>(d),
                         {device.speed, device.memory_bytes});
  }
  // A step runs while the one before it ends, one step stale while the three
  // before it do.
  for (int job = 0; job < static_cast<int>(jobs_.size()); ++job) {
    for (int i = 0; i < (Stale(jobs_[job].fed) ? 4 : 2); ++i) BeginStep(job);
  }
}

// One more than are uploaded: a part is with its device until its results are
// in host memory, while the next one runs.
DispatcherOptions DispatcherFeed::OptionsFor(const std::vector<FedJob>& jobs) {
  DispatcherOptions options;
  for (const FedJob& job : jobs) {
    options.max_job_slots =
        std::max(options.max_job_slots, 2 + job.plan->look_ahead);
  }
  options.max_device_slots =
      std::max(options.max_device_slots, options.max_job_slots);
  return options;
}

JobShape DispatcherFeed::ShapeOf(const FedJob& job) {
  const ModelCosts& costs = *job.costs;
  JobShape shape;
  shape.layer_count = costs.layers + 1;
  shape.unit_count = costs.layers + 2;
  shape.tied_head = costs.tied_head;
  shape.trainable.push_back(TrainsEmbedding(costs));
  for (int layer = 0; layer <= costs.head(); ++layer) {
    shape.trainable.push_back(costs.GradientBytes(layer) > 0);
  }
  // A job trains something; where nothing has a gradient, its host work moves
  // no bytes.
  if (shape.trainable_count() == 0) shape.trainable.clear();
  shape.stale = Stale(job);
  shape.one_pass = IsOnePass(job.rounds.updates);
  return shape;
}

void DispatcherFeed::AddJob(const FedJob& job, int first_number) {
  Job added{job, PartsOf(*job.plan, job.rounds.micro_batches), SpecOf(job),
            first_number};
  dispatcher_.AddJob(IdOf(static_cast<int>(jobs_.size())), ShapeOf(job), {},
                     job.priority);
  jobs_.push_back(std::move(added));
}

StepSpec DispatcherFeed::SpecOf(const FedJob& job) const {
  const ModelCosts& costs = *job.costs;
  const HostWork::Rounds& rounds = job.rounds;
  StepSpec spec;
  // An isolated step is reduced and not updated: it never gets a factor.
  spec.clip =
      rounds.updates == Updates::kNone || rounds.updates == Updates::kClipped;
  spec.plan = PlanOfFullRound(*job.plan, rounds.micro_batches);
  spec.groups = job.plan->groups;
  spec.round_micro_batches.assign(rounds.per_step, rounds.micro_batches);
  // In one pass sums are held until the next step's slots run.
  spec.blocks =
      BlocksOf(spec.plan, IsOnePass(rounds.updates) ? 2 : rounds.per_step,
               job_slots_ * machine_.device_count());
  const int64_t tensors = BoundaryTensors(spec.plan, RowGradientOf(costs),
                                          job_slots_ * machine_.device_count());
  spec.boundary_blocks =
      rounds.micro_batches *
      std::min(tensors, job.boundary_tensors.value_or(tensors));
  spec.layer_costs = LayerCosts(costs);
  spec.device_bytes = [&costs](const Part& part) {
    return PartPeakBytes(part, costs);
  };
  return spec;
}

void DispatcherFeed::BeginStep(int index) {
  Job& job = jobs_[index];
  if (job.steps_begun == job.fed.rounds.steps) return;
  ++job.steps_begun;
  dispatcher_.BeginStep(IdOf(index), job.spec);
}

int DispatcherFeed::JobOf(int part) const {
  int job = static_cast<int>(jobs_.size()) - 1;
  while (jobs_[job].first_number > part) --job;
  return job;
}

int DispatcherFeed::NumberOf(const RunSlotAction& action) const {
  const Job& job = jobs_[IndexOf(action.job)];
  const auto round =
      static_cast<int>(action.place.step_number) * job.fed.rounds.per_step +
      action.place.round;
  const Part& part = job.parts.at(action.place.index);
  ROUNDHOUSE_CHECK(part.kind == action.kind && part.layers == action.layers &&
                   part.micro_batches == action.micro_batches)
      << "slot " << Number(action.slot);
  return job.first_number + round * static_cast<int>(job.parts.size()) +
         action.place.index;
}

// --- decisions ---

void DispatcherFeed::CarryOut() {
  if (!changed_) return;
  for (auto actions = dispatcher_.TakeActions(); !actions.empty();
       actions = dispatcher_.TakeActions()) {
    for (const Action& action : actions) {
      std::visit([this](const auto& a) { Execute(a); }, action);
    }
  }
}

void DispatcherFeed::Execute(const RunSlotAction& action) {
  const int part = NumberOf(action);
  const auto device = static_cast<int>(Number(action.device));
  out_[part] = {action.slot, device};
  part_of_[action.slot] = part;
  waiting_[device][IndexOf(action.job)].push_back(
      {part, action.turn, decided_++});
  may_send_ = true;
}

void DispatcherFeed::Execute(const WithdrawSlotAction& action) {
  const int part = part_of_.at(action.slot);
  const Out out = out_.at(part);
  const int job = IndexOf(action.job);
  out_.erase(part);
  if (out.sent) {
    withdrawn_.push_back(part);
    if (!out.computed) --uncomputed_[out.device][job];
    may_send_ = true;
  } else {
    std::erase_if(waiting_[out.device][job],
                  [part](const Waiting& w) { return w.part == part; });
  }
  dispatcher_.SlotWithdrawn(action.slot);
}

void DispatcherFeed::Execute(const SetTurnAction& action) {
  const int part = part_of_.at(action.slot);
  const auto device = static_cast<int>(Number(action.device));
  for (Waiting& waiting : waiting_[device][IndexOf(action.job)]) {
    if (waiting.part == part) waiting.turn = action.turn;
  }
}

void DispatcherFeed::Execute(const RunHostOpAction& action) {
  const Job& job = jobs_[IndexOf(action.job)];
  const int per_step = job.fed.rounds.per_step;
  const int first = static_cast<int>(action.step_number) * per_step;
  HostTask task;
  task.job = IndexOf(action.job);
  task.round = first + action.round;
  task.layer = action.unit - 1;
  if (action.kind == HostOpKind::kGather) {
    Gather(task);
    dispatcher_.HostOpDone(action.op);
    return;
  }
  if (task.layer == kEmbedding &&
      job.fed.costs->embedding_gradient_bytes == 0) {
    dispatcher_.HostOpDone(action.op);
    return;
  }
  if (action.kind == HostOpKind::kUpdate) {
    task.kind = HostOpKind::kUpdate;
    task.round = first + per_step - 1;
    host_ops_[KeyOf(task)] = action.op;
    tasks_.push_back(task);
    return;
  }
  task.kind = HostOpKind::kReduce;
  if (action.unit > 0) {
    Reduce(task, action.op);
    return;
  }
  if (!action.blocks.empty()) {
    HostTask share = task;
    share.layer = kHeadShare;
    // An operation that adds both ends with the rows.
    Reduce(share, action.rows ? std::nullopt : std::optional(action.op));
  }
  if (action.rows) Reduce(task, action.op);
}

// The host worker does them in order; here they only wait for each other where
// one reads the sum that the other writes.
void DispatcherFeed::Reduce(const HostTask& task, std::optional<HostOpId> op) {
  host_ops_[KeyOf(task)] = op;
  std::vector<HostTask> before;
  HostTask other = task;
  if (task.layer == kEmbedding) {
    other.layer = kHeadShare;
    before.push_back(other);
  }
  other.layer = std::max(task.layer, kEmbedding);
  --other.round;
  if (task.layer < 0) before.push_back(other);
  other.kind = HostOpKind::kUpdate;
  before.push_back(other);
  for (const HostTask& sent : before) {
    if (host_ops_.count(KeyOf(sent)) == 0) continue;
    after_.emplace(KeyOf(sent), task);
    return;
  }
  tasks_.push_back(task);
}

// The host worker does it after every update that it was sent before.
void DispatcherFeed::Gather(const HostTask& task) {
  for (auto sent = host_ops_.rbegin(); sent != host_ops_.rend(); ++sent) {
    const auto& [kind, job, round, layer] = sent->first;
    if (kind == HostOpKind::kUpdate && job == task.job && layer == kEmbedding) {
      after_.emplace(sent->first, task);
      return;
    }
  }
  tasks_.push_back(task);
}

void DispatcherFeed::Execute(const StepReducedAction& action) {
  if (jobs_[IndexOf(action.job)].fed.rounds.updates == Updates::kClipped) {
    dispatcher_.AllowUpdates(action.job, action.step_number);
  }
}

void DispatcherFeed::Execute(const StepDoneAction& action) {
  BeginStep(IndexOf(action.job));
}

void DispatcherFeed::Execute(const QuietAction& action) {
  ROUNDHOUSE_CHECK(false) << "job " << Number(action.job) << " was abandoned";
}

std::vector<PartFeed::Sent> DispatcherFeed::TakeSent() {
  std::vector<Sent> sent;
  if (!changed_) return sent;
  CarryOut();
  changed_ = false;
  if (!std::exchange(may_send_, false)) return sent;
  for (size_t d = 0; d < waiting_.size(); ++d) {
    for (size_t j = 0; j < jobs_.size(); ++j) {
      auto& waiting = waiting_[d][j];
      const int most = 1 + jobs_[j].fed.plan->look_ahead;
      while (!waiting.empty() && uncomputed_[d][j] < most) {
        const Waiting next = waiting.front();
        waiting.pop_front();
        ++uncomputed_[d][j];
        out_.at(next.part).sent = true;
        sent.push_back({next.part, static_cast<int>(d), next.turn, next.order,
                        jobs_[j].fed.priority == Priority::kBackfill});
      }
    }
  }
  // In the order of the Dispatcher, as far as it is one.
  std::sort(sent.begin(), sent.end(),
            [](const Sent& a, const Sent& b) { return a.part < b.part; });
  return sent;
}

std::vector<int> DispatcherFeed::TakeWithdrawn() {
  CarryOut();
  return std::exchange(withdrawn_, {});
}

std::vector<PartFeed::HostTask> DispatcherFeed::TakeHostTasks() {
  CarryOut();
  return std::exchange(tasks_, {});
}

// --- events ---

void DispatcherFeed::Computed(int part) {
  changed_ = may_send_ = true;
  Out& out = out_.at(part);
  out.computed = true;
  --uncomputed_[out.device][JobOf(part)];
}

void DispatcherFeed::ContributionDown(int part, int layer) {
  if (!options_.reports_contributions) return;
  changed_ = true;
  const SlotId slot = out_.at(part).slot;
  dispatcher_.ContributionDown(slot, layer + 1);
  const ModelCosts& costs = *jobs_[JobOf(part)].fed.costs;
  if (costs.tied_head && layer == costs.head()) {
    dispatcher_.ContributionDown(slot, costs.layers + 2);
  }
}

void DispatcherFeed::Done(int part) {
  changed_ = true;
  const Out out = out_.at(part);
  out_.erase(part);
  part_of_.erase(out.slot);
  const Job& job = jobs_[JobOf(part)];
  const size_t index = (part - job.first_number) % job.parts.size();
  const int64_t ns = PartNs(job.parts[index], *job.fed.costs);
  dispatcher_.SlotDone(out.slot, machine_.devices[out.device].RunNs(ns));
}

void DispatcherFeed::HostTaskDone(const HostTask& task) {
  changed_ = true;
  const auto op = host_ops_.find(KeyOf(task));
  const std::optional<HostOpId> id = op->second;
  const auto [first, last] = after_.equal_range(op->first);
  for (auto next = first; next != last; ++next) tasks_.push_back(next->second);
  after_.erase(first, last);
  host_ops_.erase(op);
  if (id.has_value()) dispatcher_.HostOpDone(*id);
}

void DispatcherFeed::DeviceLost(int device) {
  ROUNDHOUSE_CHECK(!options_.reports_contributions);
  changed_ = may_send_ = true;
  std::erase_if(out_, [device](const auto& entry) {
    return entry.second.device == device;
  });
  for (size_t j = 0; j < jobs_.size(); ++j) {
    waiting_[device][j].clear();
    uncomputed_[device][j] = 0;
  }
  dispatcher_.DeviceDown(static_cast<DeviceId>(device));
  dispatcher_.DeviceLost(static_cast<DeviceId>(device));
}

}  // namespace roundhouse
