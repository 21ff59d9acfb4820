#include "server/observe/gpu_metrics.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace roundhouse {

GpuMetrics::GpuMetrics(EventLoop& loop, const GpuProbeOptions& probe,
                       std::vector<wire::Gpu> gpus, GpuSeries& series,
                       absl::Duration interval)
    : loop_(loop),
      probe_(loop, probe),
      gpus_(std::move(gpus)),
      series_(series),
      interval_(interval) {
  if (gpus_.empty()) return;
  series_.CountProbeFailures(0);
  for (size_t i = 0; i < gpus_.size(); ++i) {
    series_.Set(static_cast<int>(i), gpus_[i]);
  }
  Later();
}

GpuMetrics::~GpuMetrics() { loop_.CancelTimer(timer_); }

void GpuMetrics::Later() {
  timer_ = loop_.After(interval_, [this] {
    probe_.Start([this](const absl::StatusOr<wire::GpuReport>& report) {
      OnReport(report);
      Later();
    });
  });
}

void GpuMetrics::OnReport(const absl::StatusOr<wire::GpuReport>& report) {
  if (!report.ok()) {
    series_.CountProbeFailures(1);
    if (!std::exchange(failed_, true)) {
      RH_LOG(kWarning) << "no metrics of the GPUs: " << report.status();
    }
  } else if (std::exchange(failed_, false)) {
    RH_LOG(kInfo) << "the GPUs have metrics again";
  }
  for (size_t i = 0; i < gpus_.size(); ++i) {
    const int device = static_cast<int>(i);
    if (report.ok()) {
      Show(device, *report);
    } else {
      series_.Drop(device);
    }
  }
}

// A lost GPU may have neither UUID nor, after another start of the driver, its
// number.
void GpuMetrics::Show(int device, const wire::GpuReport& report) {
  wire::Gpu& last = gpus_[device];
  const auto found =
      std::find_if(report.gpus.begin(), report.gpus.end(),
                   [&](const wire::Gpu& gpu) { return gpu.uuid == last.uuid; });
  const std::string fault =
      found == report.gpus.end() ? "GPU is lost" : found->fault;
  if (fault != last.fault) {
    RH_LOG(kWarning) << "device " << device << ", GPU " << last.index << ": "
                     << (fault.empty() ? "there again" : fault);
  }
  if (found != report.gpus.end()) last = *found;
  last.fault = fault;
  series_.Set(device, last);
}

}  // namespace roundhouse
