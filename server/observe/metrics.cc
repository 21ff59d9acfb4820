#include "server/observe/metrics.h"

#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/mutex.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"
#include "server/observe/gpu_series.h"
#include "server/observe/metric_families.h"
#include "server/observe/user_series.h"

namespace roundhouse {
namespace {

const char* Label(DeviceTime state) {
  constexpr const char* kNames[] = {"compute", "bubble", "idle", "fenced"};
  return kNames[static_cast<int>(state)];
}
const char* Label(wire::Direction direction) {
  return direction == wire::Direction::kH2D ? "h2d" : "d2h";
}
const char* Label(wire::Purpose purpose) {
  constexpr const char* kNames[] = {"weights", "gradients", "activations",
                                    "other"};
  return kNames[static_cast<int>(purpose)];
}
const char* Label(SlotResult result) {
  constexpr const char* kNames[] = {"ok", "replayed", "failed"};
  return kNames[static_cast<int>(result)];
}
const char* Label(SlotPhase phase) {
  constexpr const char* kNames[] = {"wait", "h2d", "compute", "d2h"};
  return kNames[static_cast<int>(phase)];
}
const char* Label(ArenaUse use) {
  constexpr const char* kNames[] = {"weights", "optimizer", "gradients",
                                    "activations", "other"};
  return kNames[static_cast<int>(use)];
}

constexpr DeviceTime kDeviceTimes[] = {DeviceTime::kCompute,
                                       DeviceTime::kBubble, DeviceTime::kIdle,
                                       DeviceTime::kFenced};
constexpr wire::Direction kDirections[] = {wire::Direction::kH2D,
                                           wire::Direction::kD2H};
constexpr wire::Purpose kPurposes[] = {
    wire::Purpose::kWeights, wire::Purpose::kGradients,
    wire::Purpose::kActivations, wire::Purpose::kOther};
constexpr SlotKind kKinds[] = {SlotKind::kForward, SlotKind::kFused,
                               SlotKind::kBackward, SlotKind::kEvaluate};
constexpr SlotPhase kPhases[] = {SlotPhase::kWait, SlotPhase::kHostToDevice,
                                 SlotPhase::kCompute, SlotPhase::kDeviceToHost};
constexpr SlotResult kResults[] = {SlotResult::kOk, SlotResult::kReplayed,
                                   SlotResult::kFailed};

double Seconds(absl::Duration time) { return absl::ToDoubleSeconds(time); }

using prometheus::Labels;

Labels Of(int device) { return {{"device", absl::StrCat(device)}}; }
Labels Of(int device, wire::Direction direction) {
  return {{"device", absl::StrCat(device)}, {"direction", Label(direction)}};
}

}  // namespace

const char* WaitCauseName(wire::WaitCause cause) {
  constexpr const char* kNames[] = {"h2d_wait",  "d2h_wait", "dependency",
                                    "optimizer", "data",     "dispatch",
                                    "memory"};
  static_assert(std::size(kNames) == wire::kWaitCauses);
  return kNames[static_cast<uint32_t>(cause)];
}

// The families refer into the registry, which therefore comes first.
struct ServerMetrics::Parts {
  std::shared_ptr<prometheus::Registry> registry =
      std::make_shared<prometheus::Registry>();

  DeviceFamilies devices{*registry};
  GpuSeries gpus{*registry};
  LinkFamilies links{*registry};
  SlotFamilies slots{*registry};
  StepFamilies steps{*registry};
  JobFamilies jobs{*registry};
  UserSeries users{*registry};
  StorageFamilies storage{*registry};
  CallFamilies calls{*registry};
  prometheus::Histogram& loop_turn = calls.turn.Add({});
  prometheus::Counter& lost_audit_rows = calls.lost_audit_rows.Add({});

  // Series of one job; all of them are touched under `mutex`.
  struct Job {
    prometheus::Gauge* loss = nullptr;
    prometheus::Counter* steps = nullptr;
    prometheus::Counter* tokens = nullptr;
    prometheus::Gauge* loss_scale = nullptr;
    prometheus::Counter* skipped = nullptr;
    struct Experts {
      prometheus::Gauge* max = nullptr;
      prometheus::Gauge* entropy = nullptr;
      prometheus::Gauge* unhit = nullptr;
    };
    std::map<int, Experts> experts;  // by layer
    prometheus::Gauge* eta = nullptr;
    prometheus::Gauge* share = nullptr;
    prometheus::Gauge* info = nullptr;
  };
  // Null when there are too many.  REQUIRES: mutex is held.
  Job* FindJob(const std::string& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const auto found = running.find(id);
    if (found != running.end()) return &found->second;
    if (running.size() >= kMaxJobsWithMetrics) {
      if (!std::exchange(told_of_limit, true)) {
        RH_LOG(kWarning) << "no metrics for " << id
                         << " and others: " << kMaxJobsWithMetrics
                         << " jobs have some";
      }
      return nullptr;
    }
    return &running[id];
  }

  Mutex mutex;
  std::map<std::string, Job> running ABSL_GUARDED_BY(mutex);
  bool told_of_limit ABSL_GUARDED_BY(mutex) = false;
};

ServerMetrics::ServerMetrics(std::unique_ptr<Parts> parts)
    : parts_(std::move(parts)) {}

ServerMetrics::~ServerMetrics() = default;

std::unique_ptr<ServerMetrics> ServerMetrics::Create() {
  std::unique_ptr<ServerMetrics> metrics(
      new ServerMetrics(std::make_unique<Parts>()));
  metrics->SetJobs({});
  metrics->AddZeros();
  return metrics;
}

// A rate needs the zero that comes before the first event.
void ServerMetrics::AddZeros() {
  parts_->storage.checkpoint_failures.Add({});
  parts_->storage.checkpoint.Add({});
  parts_->storage.commit.Add({});
  parts_->steps.step.Add({});
  parts_->steps.optimizer.Add({});
  parts_->slots.dispatch_latency.Add({});
  parts_->slots.recovery.Add({});
  parts_->slots.preemption_latency.Add({});
  for (const Priority priority : kPriorities) {
    parts_->jobs.queue_wait.Add({{"class", PriorityName(priority)}});
  }
  CountSumExchanges(0, 0);
  for (SlotKind kind : kKinds) {
    for (SlotPhase phase : kPhases) {
      parts_->slots.duration.Add(
          {{"pass", SlotKindName(kind)}, {"phase", Label(phase)}});
    }
  }
}

std::string ServerMetrics::Render() const {
  return prometheus::TextSerializer().Serialize(Collect());
}

std::vector<prometheus::MetricFamily> ServerMetrics::Collect() const {
  return parts_->registry->Collect();
}

// Devices.

void ServerMetrics::AddDevice(int device) {
  for (DeviceTime state : kDeviceTimes) {
    AddDeviceTime(device, state, absl::ZeroDuration());
  }
  for (int cause = 0; cause < wire::kWaitCauses; ++cause) {
    AddBubble(device, static_cast<wire::WaitCause>(cause),
              absl::ZeroDuration());
  }
  AddFilledBubble(device, absl::ZeroDuration());
  for (wire::Direction direction : kDirections) {
    for (wire::Purpose purpose : kPurposes) {
      AddTransfer(device, direction, purpose, 0);
    }
    AddLinkBusy(device, direction, absl::ZeroDuration());
    SetLinkUtilization(device, direction, 0);
  }
  for (SlotResult result : kResults) {
    Labels labels = Of(device);
    labels["result"] = Label(result);
    parts_->slots.slots.Add(labels);
  }
  SetBubbleRatio(device, 0);
  SetDeviceMemory(device, 0);
  SetDevicePinned(device, 0);
  SetDeviceDown(device);
  parts_->devices.out_of_use.Add(Of(device)).Set(0);
}

void ServerMetrics::SetDeviceUp(int device) {
  parts_->devices.up.Add(Of(device)).Set(1);
}

void ServerMetrics::SetDeviceDown(int device) {
  parts_->devices.up.Add(Of(device)).Set(0);
}

void ServerMetrics::SetDeviceOutOfUse(int device, bool out) {
  parts_->devices.out_of_use.Add(Of(device)).Set(out ? 1 : 0);
}

void ServerMetrics::SetDeviceMemory(int device, int64_t used_bytes) {
  parts_->devices.memory.Add(Of(device)).Set(static_cast<double>(used_bytes));
}

void ServerMetrics::SetDevicePinned(int device, int64_t bytes) {
  parts_->devices.pinned.Add(Of(device)).Set(static_cast<double>(bytes));
}

void ServerMetrics::AddDeviceTime(int device, DeviceTime state,
                                  absl::Duration time) {
  Labels labels = Of(device);
  labels["state"] = Label(state);
  parts_->devices.time.Add(labels).Increment(Seconds(time));
}

void ServerMetrics::AddBubble(int device, wire::WaitCause cause,
                              absl::Duration time) {
  Labels labels = Of(device);
  labels["cause"] = WaitCauseName(cause);
  parts_->devices.bubbles.Add(labels).Increment(Seconds(time));
}

void ServerMetrics::AddFilledBubble(int device, absl::Duration time) {
  parts_->devices.filled_bubbles.Add(Of(device)).Increment(Seconds(time));
}

void ServerMetrics::SetBubbleRatio(int device, double ratio) {
  parts_->devices.bubble_ratio.Add(Of(device)).Set(ratio);
}

void ServerMetrics::AddTransfer(int device, wire::Direction direction,
                                wire::Purpose purpose, int64_t bytes) {
  Labels labels = Of(device, direction);
  labels["purpose"] = Label(purpose);
  parts_->links.bytes.Add(labels).Increment(static_cast<double>(bytes));
}

void ServerMetrics::AddLinkBusy(int device, wire::Direction direction,
                                absl::Duration time) {
  parts_->links.busy.Add(Of(device, direction)).Increment(Seconds(time));
}

void ServerMetrics::SetLinkUtilization(int device, wire::Direction direction,
                                       double ratio) {
  parts_->links.utilization.Add(Of(device, direction)).Set(ratio);
}

void ServerMetrics::SetLinkRate(int device, wire::Direction direction,
                                double bytes_per_second) {
  parts_->links.rate.Add(Of(device, direction)).Set(bytes_per_second);
}

GpuSeries& ServerMetrics::gpus() { return parts_->gpus; }

UserSeries& ServerMetrics::users() { return parts_->users; }

void ServerMetrics::CountSlot(int device, SlotResult result) {
  Labels labels = Of(device);
  labels["result"] = Label(result);
  parts_->slots.slots.Add(labels).Increment();
}

void ServerMetrics::CountSumExchanges(int64_t ok, int64_t failed) {
  parts_->slots.sum_exchanges.Add({{"result", "ok"}})
      .Increment(static_cast<double>(ok));
  parts_->slots.sum_exchanges.Add({{"result", "failed"}})
      .Increment(static_cast<double>(failed));
}

void ServerMetrics::ObserveSlot(SlotKind kind, SlotPhase phase,
                                absl::Duration time) {
  parts_->slots.duration
      .Add({{"pass", SlotKindName(kind)}, {"phase", Label(phase)}})
      .Observe(Seconds(time));
}

void ServerMetrics::ObserveDispatchLatency(absl::Duration time) {
  parts_->slots.dispatch_latency.Add({}).Observe(Seconds(time));
}

void ServerMetrics::ObservePreemption(absl::Duration time) {
  parts_->slots.preemption_latency.Add({}).Observe(Seconds(time));
}

void ServerMetrics::ObserveStep(absl::Duration time) {
  parts_->steps.step.Add({}).Observe(Seconds(time));
}

void ServerMetrics::ObserveOptimizer(absl::Duration time) {
  parts_->steps.optimizer.Add({}).Observe(Seconds(time));
}

void ServerMetrics::SetHostArena(ArenaUse use, int64_t bytes) {
  parts_->storage.arena.Add({{"kind", Label(use)}})
      .Set(static_cast<double>(bytes));
}

void ServerMetrics::SetHostArenaLimit(int64_t bytes) {
  parts_->storage.arena_limit.Add({}).Set(static_cast<double>(bytes));
}

void ServerMetrics::SetDiskFree(int64_t bytes) {
  parts_->storage.disk_free.Add({}).Set(static_cast<double>(bytes));
}

// Jobs.

void ServerMetrics::SetJobs(const std::map<JobState, int64_t>& counts) {
  for (JobState state : AllJobStates()) {
    const auto found = counts.find(state);
    parts_->jobs.jobs.Add({{"state", JobStateName(state)}})
        .Set(found == counts.end() ? 0 : static_cast<double>(found->second));
  }
}

void ServerMetrics::SetJobLoss(const std::string& id, double loss) {
  MutexLock lock(parts_->mutex);
  Parts::Job* const job = parts_->FindJob(id);
  if (job == nullptr) return;
  if (job->loss == nullptr) job->loss = &parts_->jobs.loss.Add({{"job", id}});
  job->loss->Set(loss);
}

void ServerMetrics::AddJobSteps(const std::string& id, int64_t steps) {
  MutexLock lock(parts_->mutex);
  Parts::Job* const job = parts_->FindJob(id);
  if (job == nullptr) return;
  if (job->steps == nullptr) {
    job->steps = &parts_->jobs.steps.Add({{"job", id}});
  }
  job->steps->Increment(static_cast<double>(steps));
}

void ServerMetrics::AddJobTokens(const std::string& id, int64_t tokens) {
  MutexLock lock(parts_->mutex);
  Parts::Job* const job = parts_->FindJob(id);
  if (job == nullptr) return;
  if (job->tokens == nullptr) {
    job->tokens = &parts_->jobs.tokens.Add({{"job", id}});
  }
  job->tokens->Increment(static_cast<double>(tokens));
}

void ServerMetrics::SetJobExperts(const std::string& id,
                                  const std::vector<LayerLoad>& layers) {
  MutexLock lock(parts_->mutex);
  Parts::Job* const job = parts_->FindJob(id);
  if (job == nullptr) return;
  JobFamilies& all = parts_->jobs;
  for (const LayerLoad& load : layers) {
    const auto [found, is_new] = job->experts.try_emplace(load.layer);
    Parts::Job::Experts& series = found->second;
    if (is_new) {
      const prometheus::Labels labels = {{"job", id},
                                         {"layer", absl::StrCat(load.layer)}};
      series = {&all.expert_max.Add(labels), &all.expert_entropy.Add(labels),
                &all.experts_unhit.Add(labels)};
    }
    series.max->Set(load.max_over_mean);
    series.entropy->Set(load.entropy);
    series.unhit->Set(static_cast<double>(load.unhit));
  }
}

void ServerMetrics::SetJobLossScale(const std::string& id, double scale) {
  MutexLock lock(parts_->mutex);
  Parts::Job* const job = parts_->FindJob(id);
  if (job == nullptr) return;
  if (job->loss_scale == nullptr) {
    job->loss_scale = &parts_->jobs.loss_scale.Add({{"job", id}});
  }
  job->loss_scale->Set(scale);
}

void ServerMetrics::AddJobSkippedSteps(const std::string& id, int64_t steps) {
  MutexLock lock(parts_->mutex);
  Parts::Job* const job = parts_->FindJob(id);
  if (job == nullptr) return;
  if (job->skipped == nullptr) {
    job->skipped = &parts_->jobs.skipped.Add({{"job", id}});
  }
  job->skipped->Increment(static_cast<double>(steps));
}

void ServerMetrics::SetJobEta(const std::string& id, absl::Time eta) {
  MutexLock lock(parts_->mutex);
  Parts::Job* const job = parts_->FindJob(id);
  if (job == nullptr) return;
  if (job->eta == nullptr) job->eta = &parts_->jobs.eta.Add({{"job", id}});
  job->eta->Set(absl::ToDoubleSeconds(eta - absl::UnixEpoch()));
}

void ServerMetrics::SetJobShare(const std::string& id, double ratio) {
  MutexLock lock(parts_->mutex);
  Parts::Job* const job = parts_->FindJob(id);
  if (job == nullptr) return;
  if (job->share == nullptr) {
    job->share = &parts_->jobs.share.Add({{"job", id}});
  }
  job->share->Set(ratio);
}

void ServerMetrics::SetJobInfo(const std::string& id, const JobInfo& info) {
  MutexLock lock(parts_->mutex);
  Parts::Job* const job = parts_->FindJob(id);
  if (job == nullptr || job->info != nullptr) return;
  job->info = &parts_->jobs.info.Add({{"job", id},
                                      {"user", info.user},
                                      {"model", info.model},
                                      {"method", info.method}});
  job->info->Set(1);
}

void ServerMetrics::DropJob(const std::string& id) {
  MutexLock lock(parts_->mutex);
  const auto found = parts_->running.find(id);
  if (found == parts_->running.end()) return;
  const Parts::Job& job = found->second;
  JobFamilies& all = parts_->jobs;
  if (job.loss != nullptr) all.loss.Remove(job.loss);
  if (job.steps != nullptr) all.steps.Remove(job.steps);
  if (job.tokens != nullptr) all.tokens.Remove(job.tokens);
  if (job.loss_scale != nullptr) all.loss_scale.Remove(job.loss_scale);
  if (job.skipped != nullptr) all.skipped.Remove(job.skipped);
  for (const auto& [layer, series] : job.experts) {
    all.expert_max.Remove(series.max);
    all.expert_entropy.Remove(series.entropy);
    all.experts_unhit.Remove(series.unhit);
  }
  if (job.eta != nullptr) all.eta.Remove(job.eta);
  if (job.share != nullptr) all.share.Remove(job.share);
  if (job.info != nullptr) all.info.Remove(job.info);
  parts_->running.erase(found);
}

void ServerMetrics::ObserveQueueWait(Priority priority, absl::Duration time) {
  parts_->jobs.queue_wait.Add({{"class", PriorityName(priority)}})
      .Observe(Seconds(time));
}

void ServerMetrics::ObserveCheckpoint(absl::Duration time) {
  parts_->storage.checkpoint.Add({}).Observe(Seconds(time));
}

void ServerMetrics::CountCheckpointFailure() {
  parts_->storage.checkpoint_failures.Add({}).Increment();
}

void ServerMetrics::ObserveCommit(absl::Duration time) {
  parts_->storage.commit.Add({}).Observe(Seconds(time));
}

void ServerMetrics::ObserveLoopTurn(absl::Duration time) {
  parts_->loop_turn.Observe(Seconds(time));
}

void ServerMetrics::ObserveRecovery(absl::Duration time) {
  parts_->slots.recovery.Add({}).Observe(Seconds(time));
}

void ServerMetrics::CountLostAuditRow() { parts_->lost_audit_rows.Increment(); }

void ServerMetrics::ObserveCall(const std::string& service,
                                const std::string& method,
                                const std::string& code, absl::Duration time) {
  Labels labels = {{"grpc_service", service}, {"grpc_method", method}};
  parts_->calls.handling.Add(labels).Observe(Seconds(time));
  labels["grpc_code"] = code;
  parts_->calls.handled.Add(labels).Increment();
}

}  // namespace roundhouse
