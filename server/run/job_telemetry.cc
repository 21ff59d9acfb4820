#include "server/run/job_telemetry.h"

#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "server/loop/event_loop.h"

namespace roundhouse {
namespace {

double Seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

}  // namespace

void JobTelemetry::StartCounting() {
  times_at_start_ = sinks_.devices.times();
  compute_ns_.assign(times_at_start_.size(), 0);
}

std::vector<DeviceUse> JobTelemetry::device_use() const {
  std::vector<DeviceUse> use;
  if (!counts()) return use;
  const std::vector<DeviceTimes> times = sinks_.devices.times();
  for (size_t i = 0; i < times.size(); ++i) {
    use.push_back({static_cast<int>(i), Seconds(compute_ns_[i]),
                   Seconds(times[i].bubble_ns - times_at_start_[i].bubble_ns)});
  }
  return use;
}

int64_t JobTelemetry::device_ns() const {
  return std::accumulate(compute_ns_.begin(), compute_ns_.end(), int64_t{0});
}

void JobTelemetry::OnSlotSent(uint64_t attempt, const RunSlotAction& slot,
                              int64_t step) {
  sinks_.devices.OnSlotSent(
      slot.device, attempt,
      {.job = job_, .step = step, .kind = slot.kind, .layers = slot.layers});
}

void JobTelemetry::OnSlot(DeviceId device, SlotKind kind,
                          const wire::SlotDone& done) {
  sinks_.recorder.OnSlotDone(Number(device), done);
  compute_ns_[Number(device)] += done.compute_ns;
  sinks_.devices.OnSlot(job_, device, kind, done);
}

void JobTelemetry::OnUrgentBegins(double seconds) {
  sinks_.devices.OnUrgentBegins(seconds);
}

void JobTelemetry::OnSlotReplayed(DeviceId device) {
  sinks_.devices.OnSlotReplayed(device);
}

void JobTelemetry::OnSlotFailed(DeviceId device) {
  sinks_.devices.OnSlotFailed(device);
}

void JobTelemetry::OnSlotCommand(wire::RunSlot& command) {
  sinks_.recorder.OnSlotCommand(job_, command, MonotonicNs());
}

void JobTelemetry::OnHostOp(const HostOpTimes& work) {
  host_ns_ += work.ended_ns - work.started_ns;
  sinks_.recorder.OnHostOp(job_, work);
}

void JobTelemetry::OnStepDone(int64_t step) {
  sinks_.recorder.OnStepDone(job_, step, MonotonicNs());
}

void JobTelemetry::OnSumExchanges(int64_t exchanged, int64_t failed) {
  sinks_.metrics.CountSumExchanges(exchanged, failed);
}

void JobTelemetry::OnUnitUpdated(double seconds) {
  sinks_.metrics.ObserveOptimizer(absl::Seconds(seconds));
}

void JobTelemetry::OnRecovered(DeviceId device, double seconds) {
  sinks_.metrics.ObserveRecovery(absl::Seconds(seconds));
  sinks_.note(absl::StrCat("device ", Number(device), " works again after ",
                           seconds, " s"));
}

void JobTelemetry::OnDispatchLatency(double seconds) {
  sinks_.devices.OnDispatchLatency(seconds);
}

}  // namespace roundhouse
