#include "server/observe/metrics.h"

#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "prometheus/counter.h"
#include "prometheus/exposer.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"

namespace roundhouse {
namespace {

using Buckets = prometheus::Histogram::BucketBoundaries;
template <typename T>
using Family = prometheus::Family<T>;

// Seconds.
const Buckets& ShortTimes() {
  static const auto* const b =
      new Buckets{1e-5, 2.5e-5, 5e-5,   1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3,
                  5e-3, 1e-2,   2.5e-2, 5e-2, 0.1,    0.25, 0.5,  1};
  return *b;
}
const Buckets& LongTimes() {
  static const auto* const b =
      new Buckets{1e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1,
                  2.5,  5,    10,   30,     60,   300, 1800, 7200};
  return *b;
}

const char* Label(DeviceTime state) {
  constexpr const char* kNames[] = {"compute", "bubble", "idle", "fenced"};
  return kNames[static_cast<int>(state)];
}
const char* Label(TransferDirection direction) {
  return direction == TransferDirection::kHostToDevice ? "h2d" : "d2h";
}
const char* Label(TransferPurpose purpose) {
  constexpr const char* kNames[] = {"weights", "gradients", "activations",
                                    "other"};
  return kNames[static_cast<int>(purpose)];
}
const char* Label(SlotResult result) {
  constexpr const char* kNames[] = {"ok", "replayed", "failed"};
  return kNames[static_cast<int>(result)];
}
const char* Label(SlotPassLabel pass) {
  constexpr const char* kNames[] = {"forward", "fused", "backward", "evaluate"};
  return kNames[static_cast<int>(pass)];
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
constexpr TransferDirection kDirections[] = {TransferDirection::kHostToDevice,
                                             TransferDirection::kDeviceToHost};
constexpr TransferPurpose kPurposes[] = {
    TransferPurpose::kWeights, TransferPurpose::kGradients,
    TransferPurpose::kActivations, TransferPurpose::kOther};
constexpr SlotResult kResults[] = {SlotResult::kOk, SlotResult::kReplayed,
                                   SlotResult::kFailed};

// "127.0.0.1:9464": the loopback only, since metrics need no token.
absl::Status CheckListen(const std::string& listen) {
  const size_t colon = listen.rfind(':');
  int port = -1;
  const std::string host = listen.substr(0, colon);
  if (colon == std::string::npos ||
      (host != "127.0.0.1" && host != "localhost" && host != "[::1]") ||
      !absl::SimpleAtoi(listen.substr(colon + 1), &port) || port < 0 ||
      port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("--metrics-listen: \"", listen,
                     "\" is not 127.0.0.1:PORT, localhost:PORT or [::1]:PORT"));
  }
  return absl::OkStatus();
}

double Seconds(absl::Duration time) { return absl::ToDoubleSeconds(time); }

std::string DeviceLabel(int device) { return absl::StrCat(device); }

}  // namespace

// The families refer into the registry, which therefore comes first.
struct ServerMetrics::Parts {
  std::shared_ptr<prometheus::Registry> registry =
      std::make_shared<prometheus::Registry>();

  Family<prometheus::Counter>& Counter(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(*registry);
  }
  Family<prometheus::Gauge>& Gauge(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(*registry);
  }
  Family<prometheus::Histogram>& Histogram(const char* name, const char* help) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(
        *registry);
  }

  Family<prometheus::Counter>& device_time =
      Counter("roundhouse_device_time_seconds_total",
              "Wall time of a device by what it did.");
  Family<prometheus::Gauge>& bubble_ratio =
      Gauge("roundhouse_device_bubble_ratio",
            "Bubble share of compute and bubble time over the last 10 s.");
  Family<prometheus::Gauge>& device_up =
      Gauge("roundhouse_device_up", "1 while the device's worker is there.");
  Family<prometheus::Gauge>& device_memory =
      Gauge("roundhouse_device_memory_used_bytes", "Device memory in use.");
  Family<prometheus::Counter>& transfers =
      Counter("roundhouse_pcie_transfer_bytes_total",
              "Bytes copied between host and device.");
  Family<prometheus::Counter>& slots =
      Counter("roundhouse_slots_total",
              "Slots by result; replayed: lost with its worker, sent again.");
  Family<prometheus::Histogram>& slot_duration =
      Histogram("roundhouse_slot_duration_seconds", "Phases of a slot.");
  Family<prometheus::Histogram>& dispatch_latency =
      Histogram("roundhouse_slot_dispatch_latency_seconds",
                "From the event that made a slot possible to its start.");
  Family<prometheus::Histogram>& step_duration = Histogram(
      "roundhouse_step_duration_seconds", "Optimizer steps of all jobs.");
  Family<prometheus::Histogram>& optimizer_duration =
      Histogram("roundhouse_optimizer_duration_seconds",
                "Reductions and update of one unit in one step.");
  Family<prometheus::Gauge>& arena =
      Gauge("roundhouse_host_arena_bytes", "Arena bytes in use.");
  Family<prometheus::Gauge>& arena_limit =
      Gauge("roundhouse_host_arena_limit_bytes", "Arena bytes at most.");
  Family<prometheus::Gauge>& jobs =
      Gauge("roundhouse_jobs", "Jobs in a state.");
  Family<prometheus::Gauge>& job_loss =
      Gauge("roundhouse_job_loss", "Training loss of the last step.");
  Family<prometheus::Counter>& job_steps =
      Counter("roundhouse_job_steps_total", "Optimizer steps.");
  Family<prometheus::Counter>& job_tokens =
      Counter("roundhouse_job_tokens_total", "Target tokens trained on.");
  Family<prometheus::Gauge>& job_eta =
      Gauge("roundhouse_job_eta_timestamp_seconds", "When the job should end.");
  Family<prometheus::Histogram>& queue_wait =
      Histogram("roundhouse_queue_wait_seconds", "From QUEUED to LOADING.");
  Family<prometheus::Histogram>& checkpoint_duration = Histogram(
      "roundhouse_checkpoint_duration_seconds", "Writing a checkpoint.");
  Family<prometheus::Counter>& checkpoint_failures =
      Counter("roundhouse_checkpoint_failures_total",
              "Checkpoints that could not be written.");
  Family<prometheus::Histogram>& recovery_duration =
      Histogram("roundhouse_recovery_duration_seconds",
                "From a worker's death to its device's next slot.");

  // Series of one job; all of them are touched under `mutex`.
  struct Job {
    prometheus::Gauge* loss = nullptr;
    prometheus::Counter* steps = nullptr;
    prometheus::Counter* tokens = nullptr;
    prometheus::Gauge* eta = nullptr;
  };
  // Null when there are too many.  REQUIRES: mutex is held.
  Job* FindJob(const std::string& id) {
    const auto found = running.find(id);
    if (found != running.end()) return &found->second;
    if (running.size() >= kMaxJobsWithMetrics) {
      RH_LOG(kWarning) << "no metrics for " << id << ": " << kMaxJobsWithMetrics
                       << " jobs have some";
      return nullptr;
    }
    return &running[id];
  }

  std::mutex mutex;
  std::map<std::string, Job> running;            // Guarded by mutex.
  std::unique_ptr<prometheus::Exposer> exposer;  // Dies first.
};

ServerMetrics::ServerMetrics(std::unique_ptr<Parts> parts)
    : parts_(std::move(parts)) {}

ServerMetrics::~ServerMetrics() = default;

absl::StatusOr<std::unique_ptr<ServerMetrics>> ServerMetrics::Start(
    const std::string& listen) {
  std::unique_ptr<ServerMetrics> metrics(
      new ServerMetrics(std::make_unique<Parts>()));
  metrics->SetJobs({});
  // A rate needs the zero that comes before the first failure.
  metrics->parts_->checkpoint_failures.Add({});
  if (!listen.empty()) RETURN_IF_ERROR(metrics->Serve(listen));
  return metrics;
}

absl::Status ServerMetrics::Serve(const std::string& listen) {
  RETURN_IF_ERROR(CheckListen(listen));
  // civetweb knows no names.
  std::string bound = listen;
  if (absl::StartsWith(bound, "localhost:")) {
    bound = absl::StrCat("127.0.0.1", bound.substr(bound.rfind(':')));
  }
  try {
    parts_->exposer = std::make_unique<prometheus::Exposer>(bound, 2);
  } catch (const std::exception&) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--metrics-listen: can't listen on ", listen, "; is the port taken?"));
  }
  parts_->exposer->RegisterCollectable(parts_->registry);
  const std::vector<int> ports = parts_->exposer->GetListeningPorts();
  ROUNDHOUSE_CHECK(!ports.empty());
  address_ = absl::StrCat(bound.substr(0, bound.rfind(':')), ":", ports[0]);
  return absl::OkStatus();
}

std::string ServerMetrics::Render() const {
  return prometheus::TextSerializer().Serialize(parts_->registry->Collect());
}

// Devices.

void ServerMetrics::AddDevice(int device) {
  for (DeviceTime state : kDeviceTimes) {
    AddDeviceTime(device, state, absl::ZeroDuration());
  }
  for (TransferDirection direction : kDirections) {
    for (TransferPurpose purpose : kPurposes) {
      AddTransfer(device, direction, purpose, 0);
    }
  }
  for (SlotResult result : kResults) {
    parts_->slots.Add(
        {{"device", DeviceLabel(device)}, {"result", Label(result)}});
  }
  SetBubbleRatio(device, 0);
  SetDeviceMemory(device, 0);
  SetDeviceUp(device, false);
}

void ServerMetrics::SetDeviceUp(int device, bool up) {
  parts_->device_up.Add({{"device", DeviceLabel(device)}}).Set(up ? 1 : 0);
}

void ServerMetrics::SetDeviceMemory(int device, int64_t used_bytes) {
  parts_->device_memory.Add({{"device", DeviceLabel(device)}})
      .Set(static_cast<double>(used_bytes));
}

void ServerMetrics::AddDeviceTime(int device, DeviceTime state,
                                  absl::Duration time) {
  parts_->device_time
      .Add({{"device", DeviceLabel(device)}, {"state", Label(state)}})
      .Increment(Seconds(time));
}

void ServerMetrics::SetBubbleRatio(int device, double ratio) {
  parts_->bubble_ratio.Add({{"device", DeviceLabel(device)}}).Set(ratio);
}

void ServerMetrics::AddTransfer(int device, TransferDirection direction,
                                TransferPurpose purpose, int64_t bytes) {
  parts_->transfers
      .Add({{"device", DeviceLabel(device)},
            {"direction", Label(direction)},
            {"purpose", Label(purpose)}})
      .Increment(static_cast<double>(bytes));
}

void ServerMetrics::CountSlot(int device, SlotResult result) {
  parts_->slots
      .Add({{"device", DeviceLabel(device)}, {"result", Label(result)}})
      .Increment();
}

void ServerMetrics::ObserveSlot(SlotPassLabel pass, SlotPhase phase,
                                absl::Duration time) {
  parts_->slot_duration
      .Add({{"pass", Label(pass)}, {"phase", Label(phase)}}, ShortTimes())
      .Observe(Seconds(time));
}

void ServerMetrics::ObserveDispatchLatency(absl::Duration time) {
  parts_->dispatch_latency.Add({}, ShortTimes()).Observe(Seconds(time));
}

void ServerMetrics::ObserveStep(absl::Duration time) {
  parts_->step_duration.Add({}, LongTimes()).Observe(Seconds(time));
}

void ServerMetrics::ObserveOptimizer(absl::Duration time) {
  parts_->optimizer_duration.Add({}, ShortTimes()).Observe(Seconds(time));
}

void ServerMetrics::SetHostArena(ArenaUse use, int64_t bytes) {
  parts_->arena.Add({{"kind", Label(use)}}).Set(static_cast<double>(bytes));
}

void ServerMetrics::SetHostArenaLimit(int64_t bytes) {
  parts_->arena_limit.Add({}).Set(static_cast<double>(bytes));
}

// Jobs.

void ServerMetrics::SetJobs(const std::map<JobState, int64_t>& counts) {
  for (JobState state : AllJobStates()) {
    const auto found = counts.find(state);
    parts_->jobs.Add({{"state", JobStateName(state)}})
        .Set(found == counts.end() ? 0 : static_cast<double>(found->second));
  }
}

void ServerMetrics::SetJobLoss(const std::string& id, double loss) {
  std::lock_guard<std::mutex> lock(parts_->mutex);
  Parts::Job* const job = parts_->FindJob(id);
  if (job == nullptr) return;
  if (job->loss == nullptr) job->loss = &parts_->job_loss.Add({{"job", id}});
  job->loss->Set(loss);
}

void ServerMetrics::AddJobSteps(const std::string& id, int64_t steps) {
  std::lock_guard<std::mutex> lock(parts_->mutex);
  Parts::Job* const job = parts_->FindJob(id);
  if (job == nullptr) return;
  if (job->steps == nullptr) job->steps = &parts_->job_steps.Add({{"job", id}});
  job->steps->Increment(static_cast<double>(steps));
}

void ServerMetrics::AddJobTokens(const std::string& id, int64_t tokens) {
  std::lock_guard<std::mutex> lock(parts_->mutex);
  Parts::Job* const job = parts_->FindJob(id);
  if (job == nullptr) return;
  if (job->tokens == nullptr) {
    job->tokens = &parts_->job_tokens.Add({{"job", id}});
  }
  job->tokens->Increment(static_cast<double>(tokens));
}

void ServerMetrics::SetJobEta(const std::string& id, absl::Time eta) {
  std::lock_guard<std::mutex> lock(parts_->mutex);
  Parts::Job* const job = parts_->FindJob(id);
  if (job == nullptr) return;
  if (job->eta == nullptr) job->eta = &parts_->job_eta.Add({{"job", id}});
  job->eta->Set(absl::ToDoubleSeconds(eta - absl::UnixEpoch()));
}

void ServerMetrics::DropJob(const std::string& id) {
  std::lock_guard<std::mutex> lock(parts_->mutex);
  const auto found = parts_->running.find(id);
  if (found == parts_->running.end()) return;
  const Parts::Job& job = found->second;
  if (job.loss != nullptr) parts_->job_loss.Remove(job.loss);
  if (job.steps != nullptr) parts_->job_steps.Remove(job.steps);
  if (job.tokens != nullptr) parts_->job_tokens.Remove(job.tokens);
  if (job.eta != nullptr) parts_->job_eta.Remove(job.eta);
  parts_->running.erase(found);
}

void ServerMetrics::ObserveQueueWait(absl::Duration time) {
  parts_->queue_wait.Add({{"class", "normal"}}, LongTimes())
      .Observe(Seconds(time));
}

void ServerMetrics::ObserveCheckpoint(absl::Duration time) {
  parts_->checkpoint_duration.Add({}, LongTimes()).Observe(Seconds(time));
}

void ServerMetrics::CountCheckpointFailure() {
  parts_->checkpoint_failures.Add({}).Increment();
}

void ServerMetrics::ObserveRecovery(absl::Duration time) {
  parts_->recovery_duration.Add({}, LongTimes()).Observe(Seconds(time));
}

}  // namespace roundhouse
