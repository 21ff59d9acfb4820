// What Prometheus scrapes: every metric of the daemon (metric_families.h), with
// its labels.
//
// Names carry the prefix roundhouse_, seconds and bytes; no label holds a path
// or the name of a job or file.  The label `job` (an id) is only on the metrics
// of running jobs: DropJob() five minutes after the end.  The label `user` is
// on those of users (user_series.h) and on job_info.
//
//   const auto metrics = ServerMetrics::Create();
//   metrics->AddDevice(0);
//   metrics->AddDeviceTime(0, DeviceTime::kCompute, absl::Milliseconds(12));
//
// Thread-safe; no call blocks for long.
#ifndef ROUNDHOUSE_SERVER_OBSERVE_METRICS_H_
#define ROUNDHOUSE_SERVER_OBSERVE_METRICS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/job_state.h"
#include "base/model/expert_load.h"
#include "base/priority.h"
#include "base/wire/events.h"
#include "base/wire/wait_cause.h"
#include "base/work_kinds.h"
#include "prometheus/metric_family.h"

namespace roundhouse {

// Jobs with series of their own; more are left out, with a warning.
inline constexpr size_t kMaxJobsWithMetrics = 100;

// The four sum to wall time.  Bubble: idle while an admitted job has work.
enum class DeviceTime { kCompute, kBubble, kIdle, kFenced };
enum class SlotResult { kOk, kReplayed, kFailed };
enum class SlotPhase { kWait, kHostToDevice, kCompute, kDeviceToHost };
// "h2d_wait", as the label has it.
const char* WaitCauseName(wire::WaitCause cause);
// What arena bytes hold: compute weights; masters and moments; gradient sums
// and contributions; what passes between stages, tokens included; the rest.
enum class ArenaUse { kWeights, kOptimizer, kGradients, kActivations, kOther };

class GpuSeries;
class UserSeries;

class ServerMetrics {
 public:
  static std::unique_ptr<ServerMetrics> Create();
  ~ServerMetrics();
  ServerMetrics(const ServerMetrics&) = delete;
  ServerMetrics& operator=(const ServerMetrics&) = delete;

  // The exposition text, as a scrape gets it.
  std::string Render() const;
  std::vector<prometheus::MetricFamily> Collect() const;

  // Makes the device's series, at zero.
  void AddDevice(int device);
  void SetDeviceUp(int device);
  void SetDeviceDown(int device);
  // Lent, fenced or yielded.
  void SetDeviceOutOfUse(int device, bool out);
  void SetDeviceMemory(int device, int64_t used_bytes);
  void SetDevicePinned(int device, int64_t bytes);
  void AddDeviceTime(int device, DeviceTime state, absl::Duration time);
  void AddBubble(int device, wire::WaitCause cause, absl::Duration time);
  // Computation that filled another job's bubble.
  void AddFilledBubble(int device, absl::Duration time);
  // The ratio of the last 10 s.
  void SetBubbleRatio(int device, double ratio);
  void AddTransfer(int device, wire::Direction direction, wire::Purpose purpose,
                   int64_t bytes);
  void AddLinkBusy(int device, wire::Direction direction, absl::Duration time);
  // The utilization of the last 10 s.
  void SetLinkUtilization(int device, wire::Direction direction, double ratio);
  // In each direction, where it is known.
  void SetLinkRate(int device, wire::Direction direction,
                   double bytes_per_second);
  // What NVML says of CUDA devices (gpu_series.h has its thread).
  GpuSeries& gpus();
  // What users have (user_series.h has its thread).
  UserSeries& users();
  void CountSlot(int device, SlotResult result);
  void CountSumExchanges(int64_t ok, int64_t failed);
  void ObserveSlot(SlotKind kind, SlotPhase phase, absl::Duration time);
  void ObserveDispatchLatency(absl::Duration time);
  // From the moment when an urgent job could go to its next slot's beginning.
  void ObservePreemption(absl::Duration time);
  void ObserveStep(absl::Duration time);
  // A unit's reductions in one step and its update.
  void ObserveOptimizer(absl::Duration time);

  void SetHostArena(ArenaUse use, int64_t bytes);
  void SetHostArenaLimit(int64_t bytes);
  void SetDiskFree(int64_t bytes);

  // Every state; those not in `counts` are 0.
  void SetJobs(const std::map<JobState, int64_t>& counts);
  void SetJobLoss(const std::string& job, double loss);
  void AddJobSteps(const std::string& job, int64_t steps);
  void AddJobTokens(const std::string& job, int64_t tokens);
  // `layers` are those with experts.
  void SetJobExperts(const std::string& job,
                     const std::vector<LayerLoad>& layers);
  void SetJobLossScale(const std::string& job, double scale);
  void AddJobSkippedSteps(const std::string& job, int64_t steps);
  void SetJobEta(const std::string& job, absl::Time eta);
  void SetJobShare(const std::string& job, double ratio);
  struct JobInfo {
    std::string user;
    std::string model;  // its family
    std::string method;
  };
  void SetJobInfo(const std::string& job, const JobInfo& info);
  void DropJob(const std::string& job);

  void ObserveQueueWait(Priority priority, absl::Duration time);
  void ObserveCheckpoint(absl::Duration time);
  void CountCheckpointFailure();
  void ObserveRecovery(absl::Duration time);
  void ObserveCommit(absl::Duration time);
  void ObserveLoopTurn(absl::Duration time);
  void CountLostAuditRow();
  // `code` as gRPC names it: "OK", "NOT_FOUND".
  void ObserveCall(const std::string& service, const std::string& method,
                   const std::string& code, absl::Duration time);

 private:
  struct Parts;
  explicit ServerMetrics(std::unique_ptr<Parts> parts);
  void AddZeros();

  std::unique_ptr<Parts> parts_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_OBSERVE_METRICS_H_
