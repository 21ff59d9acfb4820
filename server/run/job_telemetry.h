// Where a running job's telemetry goes: metrics, the recorder of traces, the
// reports of devices.  It also keeps what the job's slots took of each device.
//
// Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_RUN_JOB_TELEMETRY_H_
#define ROUNDHOUSE_SERVER_RUN_JOB_TELEMETRY_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "server/observe/device_reports.h"
#include "server/observe/metrics.h"
#include "server/observe/trace_recorder.h"
#include "server/steps/step_telemetry.h"
#include "server/store/store.h"

namespace roundhouse {

class JobTelemetry final : public StepTelemetry {
 public:
  // Everything outlives it.
  struct Sinks {
    ServerMetrics& metrics;
    DeviceReports& devices;
    TraceRecorder& recorder;
    std::function<void(const std::string& text)> note;  // for the job's log
  };

  JobTelemetry(const Sinks& sinks, std::string job)
      : sinks_(sinks), job_(std::move(job)) {}

  // What devices did is counted from now on.
  void StartCounting();
  bool counts() const { return !times_at_start_.empty(); }
  // Per device, since StartCounting; empty before it.  Computation is of the
  // job's own slots; a bubble is everybody's.
  std::vector<DeviceUse> device_use() const;

  // What its slots took of all devices, and operations of the host worker.
  int64_t device_ns() const;
  int64_t host_ns() const { return host_ns_; }

  void OnSlotSent(uint64_t attempt, const RunSlotAction& slot,
                  int64_t step) override;
  void OnSlotCommand(wire::RunSlot& command) override;
  void OnDispatchLatency(double seconds) override;
  void OnUrgentBegins(double seconds) override;
  void OnSlot(DeviceId device, SlotKind kind,
              const wire::SlotDone& done) override;
  void OnSlotReplayed(DeviceId device) override;
  void OnSlotFailed(DeviceId device) override;
  void OnHostOp(const HostOpTimes& work) override;
  void OnUnitUpdated(double seconds) override;
  void OnSumExchanges(int64_t exchanged, int64_t failed) override;
  void OnStepDone(int64_t step) override;
  void OnRecovered(DeviceId device, double seconds) override;

 private:
  const Sinks sinks_;
  const std::string job_;
  std::vector<DeviceTimes> times_at_start_;
  std::vector<int64_t> compute_ns_;  // of its slots, per device
  int64_t host_ns_ = 0;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_RUN_JOB_TELEMETRY_H_
