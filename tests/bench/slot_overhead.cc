// slot_overhead: what the machinery around the computation costs.
//
//   bazel run //tests/bench:slot_overhead -- [--runs=5] [--steps=80]
//       [--devices=4,2,1] [-o table|csv]
//
// Prints one table; progress goes to stderr.  docs/design/measurements.md
// explains the quantities.

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tests/bench/copy_rate.h"
#include "tests/bench/handover.h"
#include "tests/bench/model_inputs.h"
#include "tests/bench/quickstart_forecast.h"
#include "tests/bench/quickstart_job.h"
#include "tests/bench/real_time_forecast.h"
#include "tests/bench/table.h"

ABSL_FLAG(int, runs, 5, "runs of each measurement");
ABSL_FLAG(int, steps, 80, "steps of the quickstart's job in each run");
ABSL_FLAG(std::vector<std::string>, devices,
          std::vector<std::string>({"4", "2", "1"}),
          "CPU workers of the daemons that run it");
ABSL_FLAG(std::string, o, "table", "table (Markdown) or csv");

namespace roundhouse::bench {
namespace {

constexpr int kHandovers = 2000;
constexpr int kMaxRuns = 1000;
constexpr int kMaxDevices = 62;

// In the order in which the first run names them.
class Results {
 public:
  void Add(const std::string& name, const std::string& unit, double value) {
    for (Quantity& quantity : quantities_) {
      if (quantity.name != name) continue;
      quantity.runs.push_back(value);
      return;
    }
    quantities_.push_back({name, unit, {value}});
  }
  const std::vector<Quantity>& quantities() const { return quantities_; }

 private:
  std::vector<Quantity> quantities_;
};

absl::Status AddHandovers(Results& results) {
  ASSIGN_OR_RETURN(const std::vector<double> seconds,
                   MeasureHandovers(kHandovers));
  results.Add("event hand-over p50", "us", Quantile(seconds, 0.5) * 1e6);
  results.Add("event hand-over p99", "us", Quantile(seconds, 0.99) * 1e6);
  return absl::OkStatus();
}

absl::Status AddCopyRates(Results& results) {
  const std::pair<const char*, wire::Direction> directions[] = {
      {"to device", wire::Direction::kH2D}, {"to host", wire::Direction::kD2H}};
  for (const auto& [name, direction] : directions) {
    CopyRateOptions options;
    options.direction = direction;
    ASSIGN_OR_RETURN(const auto single, MeasureCopyRate(options));
    results.Add(absl::StrCat("copy rate over memcpy's; one of 256 KiB ", name),
                "ratio", Quantile(single, 0.5));
    options.copy_bytes = 4 << 20;
    options.requests = 16;
    options.repetitions = 20;
    ASSIGN_OR_RETURN(const auto stream, MeasureCopyRate(options));
    results.Add(absl::StrCat("copy rate over memcpy's; 16 of 4 MiB ", name),
                "ratio", Quantile(stream, 0.5));
  }
  return absl::OkStatus();
}

void AddSteps(const std::string& pool, const StepSamples& samples,
              Results& results) {
  const auto& dispatch = samples.dispatch_seconds;
  if (!dispatch.empty()) {
    results.Add(pool + ": dispatch p50", "us", Quantile(dispatch, 0.5) * 1e6);
    results.Add(pool + ": dispatch p99", "us", Quantile(dispatch, 0.99) * 1e6);
  }
  results.Add(pool + ": step", "ms", samples.step_seconds * 1e3);
  for (size_t d = 0; d < samples.devices.size(); ++d) {
    const DeviceShares& device = samples.devices[d];
    const std::string name = absl::StrCat(pool, ": device ", d, " ");
    results.Add(name + "compute", "% of step", device.compute * 100);
    results.Add(name + "waiting in a slot", "% of step", device.wait * 100);
    results.Add(name + "without a slot", "% of step", device.idle * 100);
    results.Add(name + "h2d beside it", "% of step", device.h2d * 100);
    results.Add(name + "d2h beside it", "% of step", device.d2h * 100);
  }
  results.Add(pool + ": host worker busy", "% of step",
              samples.host_busy * 100);
}

void AddUse(const std::string& pool, const UseShares& use, int64_t steps,
            Results& results) {
  results.Add(pool + ": CPU time of a step", "ms",
              use.cpu_seconds * 1e3 / static_cast<double>(steps));
  results.Add(pool + ": compute threads", "% of CPU time", use.compute * 100);
  results.Add(pool + ": device workers' other threads", "% of CPU time",
              use.device * 100);
  results.Add(pool + ": host worker", "% of CPU time", use.host * 100);
  results.Add(pool + ": daemon", "% of CPU time", use.daemon * 100);
  results.Add(pool + ": compute threads ready but without a core",
              "% of compute", use.compute_ready * 100);
}

void AddPlan(const std::string& plan, const DaemonJobResult& run,
             Results& results) {
  double compute = 0;
  for (const DeviceShares& device : run.samples.devices) {
    compute += device.compute / static_cast<double>(run.samples.devices.size());
  }
  results.Add(plan + ": step", "ms", run.samples.step_seconds * 1e3);
  results.Add(
      plan + ": CPU time of a step", "ms",
      run.use.cpu_seconds * 1e3 / static_cast<double>(run.samples.steps));
  results.Add(plan + ": devices not computing", "% of step",
              (1 - compute) * 100);
}

absl::StatusOr<StepSamples> AddQuickstart(const QuickstartOptions& options,
                                          Results& results) {
  ASSIGN_OR_RETURN(const DaemonJobResult run, RunQuickstartJob(options));
  const std::string pool = absl::StrCat("cpu:", options.devices);
  AddSteps(pool, run.samples, results);
  AddUse(pool, run.use, run.samples.steps, results);
  if (options.devices > 1) AddPlan(pool + ", the daemon's plan", run, results);
  return run.samples;
}

// The job under a plan of its own, beside what its layers' times come to in
// virtual time; those are returned.
absl::StatusOr<ModelCosts> AddOwnPlan(QuickstartOptions options,
                                      const std::string& name,
                                      const std::string& plan_json,
                                      Results& results) {
  options.fields = absl::StrCat("gradient_groups: ", kQuickstartMicroBatches,
                                "\nplan: ", plan_json, "\n");
  ASSIGN_OR_RETURN(const DaemonJobResult run, RunQuickstartJob(options));
  const std::string config = Contents(options.scratch + "/model/config.json");
  ASSIGN_OR_RETURN(const ModelCosts costs,
                   QuickstartCosts(config, run.samples));
  ASSIGN_OR_RETURN(const Plan plan, ParsePlanJson(plan_json, costs.layers));
  ASSIGN_OR_RETURN(const RealTimeForecast forecast,
                   ForecastQuickstart(costs, plan, run.samples));
  const std::string title = absl::StrCat("cpu:", options.devices, ", ", name);
  AddPlan(title, run, results);
  results.Add(title + ": step, simulated", "ms", forecast.step_ms);
  results.Add(title + ": devices not computing, simulated", "% of step",
              forecast.bubble_percent);
  return costs;
}

// Beside the daemon's plan: one device a stage, layer by layer on all of them,
// and the search's for the times under the first of these.
absl::Status AddPlans(const QuickstartOptions& options,
                      const StepSamples& samples, Results& results) {
  ASSIGN_OR_RETURN(const ModelCosts costs,
                   AddOwnPlan(options, "width 1",
                              "{\"forward\": [[0, 1], [2, 3]], "
                              "\"backward\": [[4, 5], [2, 3], [0, 1]]}",
                              results));
  RETURN_IF_ERROR(
      AddOwnPlan(
          options, "all-wide",
          PlanJson(AllWidePlan(
              costs.layers, std::min(options.devices, kQuickstartMicroBatches),
              kQuickstartMicroBatches, kQuickstartMicroBatches)),
          results)
          .status());
  ASSIGN_OR_RETURN(const std::string searched,
                   SearchedQuickstartPlan(costs, samples));
  std::cerr << "searched: " << searched << std::endl;
  return AddOwnPlan(options, "searched", searched, results).status();
}

absl::Status Measure(QuickstartOptions options, const std::vector<int>& pools,
                     Results& results) {
  const int runs = absl::GetFlag(FLAGS_runs);
  RETURN_IF_ERROR(MakeQuickstartInputs(options));
  for (int run = 0; run < runs; ++run) {
    std::cerr << "run " << run + 1 << " of " << runs << std::endl;
    RETURN_IF_ERROR(AddHandovers(results));
    RETURN_IF_ERROR(AddCopyRates(results));
    for (const int devices : pools) {
      options.devices = devices;
      ASSIGN_OR_RETURN(const StepSamples samples,
                       AddQuickstart(options, results));
      if (devices == 1) continue;
      RETURN_IF_ERROR(AddPlans(options, samples, results));
    }
  }
  return absl::OkStatus();
}

// --devices.
absl::StatusOr<std::vector<int>> Pools() {
  std::vector<int> pools;
  for (const std::string& text : absl::GetFlag(FLAGS_devices)) {
    int devices = 0;
    if (!absl::SimpleAtoi(text, &devices) || devices < 1 ||
        devices > kMaxDevices) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--devices: numbers in 1..", kMaxDevices, ", not \"", text, "\""));
    }
    pools.push_back(devices);
  }
  if (!pools.empty()) return pools;
  return absl::InvalidArgumentError("--devices: names no number");
}

absl::Status CheckFlags() {
  const int runs = absl::GetFlag(FLAGS_runs);
  if (runs < 1 || runs > kMaxRuns) {
    return absl::InvalidArgumentError(
        absl::StrCat("--runs must lie in 1..", kMaxRuns));
  }
  if (absl::GetFlag(FLAGS_steps) <= kFirstStep) {
    return absl::InvalidArgumentError(
        absl::StrCat("--steps must be more than ", kFirstStep));
  }
  const std::string format = absl::GetFlag(FLAGS_o);
  if (format != "table" && format != "csv") {
    return absl::InvalidArgumentError(
        absl::StrCat("-o: table or csv, not \"", format, "\""));
  }
  return absl::OkStatus();
}

absl::Status Main() {
  RETURN_IF_ERROR(CheckFlags());
  ASSIGN_OR_RETURN(const std::vector<int> pools, Pools());
  std::string scratch =
      (std::filesystem::temp_directory_path() / "roundhouse.XXXXXX").string();
  if (mkdtemp(scratch.data()) == nullptr) {
    return absl::InternalError("cannot make " + scratch);
  }
  Results results;
  // `bazel run` starts programs in their runfiles.
  const absl::Status measured =
      Measure({.root = std::filesystem::current_path().string(),
               .scratch = scratch,
               .steps = absl::GetFlag(FLAGS_steps)},
              pools, results);
  if (!measured.ok()) return measured;  // the logs it names stay
  std::filesystem::remove_all(scratch);
  std::cout << (absl::GetFlag(FLAGS_o) == "csv"
                    ? CsvTable(results.quantities())
                    : MarkdownTable(results.quantities()));
  return absl::OkStatus();
}

}  // namespace
}  // namespace roundhouse::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = roundhouse::bench::Main();
  if (status.ok()) return 0;
  std::cerr << "slot_overhead: " << status.message() << "\n";
  return 1;
}
