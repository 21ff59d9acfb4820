#include "server/gpu/gpu_metrics.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace roundhouse {
namespace {

// Xids after which a GPU is lost, in NVIDIA's list of "Xid Errors". Their
// reasons: the GPU stopped processing; memory that cannot be corrected; its
// controller halted; off the bus; memory errors that were not contained.
// Context switches and the GSP that do not answer; memory that was not
// recovered.
constexpr uint32_t kFatalXids[] = {46, 48, 61, 62, 79, 95, 109, 119, 120, 140};

bool IsFatal(uint32_t xid) {
  return std::find(std::begin(kFatalXids), std::end(kFatalXids), xid) !=
         std::end(kFatalXids);
}

}  // namespace

GpuMetrics::GpuMetrics(EventLoop& loop, const GpuProbeOptions& probe,
                       std::vector<wire::Gpu> gpus, GpuSeries& series,
                       OnTrouble on_trouble, absl::Duration interval)
    : loop_(loop),
      probe_(loop, probe),
      gpus_(std::move(gpus)),
      series_(series),
      on_trouble_(std::move(on_trouble)),
      interval_(interval) {
  if (gpus_.empty()) return;
  series_.CountProbeFailures(0);
  for (size_t i = 0; i < gpus_.size(); ++i) {
    series_.Set(static_cast<int>(i), gpus_[i]);
    series_.CountXidErrors(static_cast<int>(i), 0);
  }
  events_.emplace(loop_, probe.program,
                  [this](const wire::GpuEvent& event) { OnXid(event); });
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
  if (!fault.empty()) ReportTrouble(device, fault);
}

void GpuMetrics::ReportTrouble(int device, const std::string& what) const {
  on_trouble_(device, absl::StrCat("GPU ", gpus_[device].index, ": ", what));
}

// GPUs that no device has are others'.
void GpuMetrics::OnXid(const wire::GpuEvent& event) {
  for (size_t i = 0; i < gpus_.size(); ++i) {
    if (gpus_[i].uuid != event.uuid) continue;
    const int device = static_cast<int>(i);
    RH_LOG(kWarning) << "device " << device << ", GPU " << gpus_[i].index
                     << ": the driver reports Xid " << event.xid;
    series_.CountXidErrors(device, 1);
    if (IsFatal(event.xid))
      ReportTrouble(device, absl::StrCat("Xid ", event.xid));
  }
}

}  // namespace roundhouse
