#include "tests/bench/real_time_report.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "tests/bench/statistics.h"
#include "tests/bench/table.h"

namespace roundhouse::bench {
namespace {

std::vector<double> TripSeconds(const std::vector<RoundTrip>& trips,
                                const StepSamples& steps) {
  std::vector<double> seconds;
  for (const RoundTrip& trip : trips) {
    if (trip.sent_ns < steps.begin_ns) continue;
    if (trip.received_ns > steps.end_ns) continue;
    seconds.push_back(static_cast<double>(trip.received_ns - trip.sent_ns) *
                      1e-9);
  }
  return seconds;
}

void AddLatency(const std::string& name, const std::vector<double>& seconds,
                std::vector<RealTimeRow>& rows) {
  rows.push_back({name + " p50", -1, "us", Quantile(seconds, 0.5) * 1e6});
  rows.push_back({name + " p99", -1, "us", Quantile(seconds, 0.99) * 1e6});
}

void AddDevices(const std::vector<DeviceShares>& devices,
                std::vector<RealTimeRow>& rows) {
  DeviceShares sum;
  for (size_t d = 0; d < devices.size(); ++d) {
    const DeviceShares& shares = devices[d];
    const int device = static_cast<int>(d);
    rows.push_back({"bubble", device, "%", (1 - shares.compute) * 100});
    rows.push_back({"waiting in a slot", device, "%", shares.wait * 100});
    rows.push_back({"without a slot", device, "%", shares.idle * 100});
    sum.compute += shares.compute;
    sum.h2d += shares.h2d;
    sum.d2h += shares.d2h;
  }
  const double percent = 100 / static_cast<double>(devices.size());
  rows.push_back({"bubble", -1, "%", 100 - sum.compute * percent});
  rows.push_back({"h2d link busy", -1, "%", sum.h2d * percent});
  rows.push_back({"d2h link busy", -1, "%", sum.d2h * percent});
}

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", value);
  return text;
}

std::string DeviceName(int device) {
  return device < 0 ? "all" : absl::StrCat(device);
}

}  // namespace

bool HasLatencies(const RealTimeRun& run) {
  return !run.samples.dispatch_seconds.empty() &&
         !TripSeconds(run.trips, run.samples).empty() &&
         !TripSeconds(run.trips_at_once, run.samples).empty();
}

std::vector<RealTimeRow> RealTimeRows(const RealTimeKey& key,
                                      const RealTimeRun& run) {
  ROUNDHOUSE_CHECK(HasLatencies(run));
  const StepSamples& samples = run.samples;
  const double step_ms = samples.step_seconds * 1e3 / key.scale;
  const double ideal_ms = run.work_ms / key.speed;
  std::vector<RealTimeRow> rows = {
      {"step", -1, "ms", step_ms},
      {"step without bubbles", -1, "ms", ideal_ms},
      {"bubble by the step's time", -1, "%", (1 - ideal_ms / step_ms) * 100}};
  AddDevices(samples.devices, rows);
  const double bubble = rows[rows.size() - 3].value;
  rows.push_back({"simulated step", -1, "ms", run.forecast.step_ms});
  rows.push_back({"simulated bubble", -1, "%", run.forecast.bubble_percent});
  rows.push_back({"bubble beyond the simulated one", -1, "points",
                  bubble - run.forecast.bubble_percent});
  rows.push_back({"host worker busy", -1, "%", samples.host_busy * 100});
  rows.push_back({"dispatches", -1, "count",
                  static_cast<double>(samples.dispatch_seconds.size())});
  AddLatency("dispatch", samples.dispatch_seconds, rows);
  AddLatency("socket loop", TripSeconds(run.trips, samples), rows);
  AddLatency(absl::StrCat("socket loop, ", key.devices, " at once"),
             TripSeconds(run.trips_at_once, samples), rows);
  const double seconds =
      samples.step_seconds * static_cast<double>(samples.steps) * run.cores;
  rows.push_back({"CPU time of daemon and workers", -1, "% of the cores",
                  run.use.cpu_seconds / seconds * 100});
  return rows;
}

std::string RealTimeCsv(const RealTimeKey& key,
                        const std::vector<std::vector<RealTimeRow>>& runs) {
  std::string text =
      "model,plan,devices,speed,micro_batches,first_step,steps,scale,clip,run,"
      "quantity,device,unit,value\n";
  for (size_t run = 0; run < runs.size(); ++run) {
    for (const RealTimeRow& row : runs[run]) {
      absl::StrAppend(&text, key.model, ",", key.plan, ",", key.devices, ",",
                      Number(key.speed), ",", key.micro_batches, ",",
                      key.first_step, ",", key.steps, ",");
      absl::StrAppend(&text, Number(key.scale), ",", key.clip ? "on" : "off",
                      ",", run + 1, ",", row.quantity, ",");
      absl::StrAppend(&text, DeviceName(row.device), ",", row.unit, ",",
                      Number(row.value), "\n");
    }
  }
  return text;
}

std::string RealTimeMarkdown(
    const std::vector<std::vector<RealTimeRow>>& runs) {
  ROUNDHOUSE_CHECK(!runs.empty());
  std::vector<Quantity> quantities;
  for (size_t i = 0; i < runs[0].size(); ++i) {
    const RealTimeRow& row = runs[0][i];
    Quantity& quantity = quantities.emplace_back();
    quantity.name = row.device < 0 ? row.quantity
                                   : absl::StrCat("device ", row.device, ": ",
                                                  row.quantity);
    quantity.unit = row.unit;
    for (const auto& run : runs) quantity.runs.push_back(run.at(i).value);
  }
  return MarkdownTable(quantities);
}

}  // namespace roundhouse::bench
