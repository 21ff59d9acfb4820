#include "server/observe/gpu_series.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace roundhouse {
namespace {

using Number = wire::Gpu::Number;
using prometheus::Labels;

Labels Of(int device) { return {{"device", absl::StrCat(device)}}; }

Labels Of(int device, const char* direction) {
  return {{"device", absl::StrCat(device)}, {"direction", direction}};
}

// Each generation has about twice the rate a lane of the one before.
double LinkRate(uint64_t generation, uint64_t lanes) {
  return std::ldexp(static_cast<double>(lanes), static_cast<int>(generation));
}

}  // namespace

// Collects a device's gauges; those that it does not write again go.
class GpuSeries::Writer {
 public:
  explicit Writer(std::vector<Series>& gauges) : gauges_(gauges) {}
  ~Writer() {
    for (const Series& old : gauges_) {
      const bool kept = std::any_of(
          written_.begin(), written_.end(),
          [&](const Series& now) { return now.gauge == old.gauge; });
      if (!kept) old.family->Remove(old.gauge);
    }
    gauges_ = written_;
  }

  void Write(GaugeFamily& family, const Labels& labels, double value) {
    prometheus::Gauge& gauge = family.Add(labels);
    gauge.Set(value);
    written_.push_back({&family, &gauge});
  }
  void Write(GaugeFamily& family, const Labels& labels, const Number& number,
             double unit = 1) {
    if (number) Write(family, labels, static_cast<double>(*number) * unit);
  }

 private:
  std::vector<Series>& gauges_;
  std::vector<Series> written_;
};

void GpuSeries::Set(int device, const wire::Gpu& gpu) {
  const Labels labels = Of(device);
  Writer writer(gauges_[device]);
  writer.Write(families_.lost, labels, gpu.fault.empty() ? 0.0 : 1.0);
  SetReplays(device, gpu.fault.empty() ? gpu.pcie_replays : Number());
  if (!gpu.fault.empty()) return;
  writer.Write(families_.temperature, labels, gpu.temperature_celsius);
  writer.Write(families_.power, labels, gpu.power_milliwatts, 1e-3);
  writer.Write(families_.power_limit, labels, gpu.power_limit_milliwatts, 1e-3);
  writer.Write(families_.sm_clock, labels, gpu.sm_clock_mhz, 1e6);
  writer.Write(families_.utilization, labels, gpu.utilization_percent, 1e-2);
  if (gpu.memory_total_bytes && gpu.memory_free_bytes) {
    writer.Write(families_.memory, labels,
                 static_cast<double>(*gpu.memory_total_bytes) -
                     static_cast<double>(*gpu.memory_free_bytes));
  }
  writer.Write(families_.link_bytes, Of(device, "h2d"),
               gpu.pcie_rx_bytes_per_second);
  writer.Write(families_.link_bytes, Of(device, "d2h"),
               gpu.pcie_tx_bytes_per_second);
  if (!gpu.pcie_generation || !gpu.pcie_width) return;
  writer.Write(families_.link_info,
               {{"device", absl::StrCat(device)},
                {"generation", absl::StrCat(*gpu.pcie_generation)},
                {"width", absl::StrCat(*gpu.pcie_width)}},
               1.0);
  const double most = LinkRate(gpu.pcie_max_generation.value_or(0),
                               gpu.pcie_max_width.value_or(0));
  if (most > 0) {
    writer.Write(families_.link_ratio, labels,
                 LinkRate(*gpu.pcie_generation, *gpu.pcie_width) / most);
  }
}

// NVML's count begins anew with the driver.
void GpuSeries::SetReplays(int device, const Number& replays) {
  prometheus::Counter*& counter = replay_counters_[device];
  const auto value = static_cast<double>(replays.value_or(0));
  if (counter != nullptr && (!replays || value < counter->Value())) {
    families_.replays.Remove(counter);
    counter = nullptr;
  }
  if (!replays) return;
  if (counter == nullptr) counter = &families_.replays.Add(Of(device));
  counter->Increment(value - counter->Value());
}

void GpuSeries::Drop(int device) {
  const Writer nothing(gauges_[device]);
  SetReplays(device, {});
}

void GpuSeries::CountProbeFailures(int count) {
  families_.probe_failures.Add({}).Increment(count);
}

void GpuSeries::CountXidErrors(int device, int count) {
  families_.xid_errors.Add(Of(device)).Increment(count);
}

}  // namespace roundhouse
