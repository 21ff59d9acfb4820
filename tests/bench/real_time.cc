// real_time: eight devices in real time on a machine of two cores.
//
//   bazel run //tests/bench:real_time -- [--model=qwen3-1.7b] [--devices=8]
//       [--micro_batches=16] [--steps=8] [--first_step=1] [--scale=1]
//       [--plan=searched]
//       [--clip=true] [--inputs=FILE] [--pcie_gbps=21] [--host_gbps=200]
//       [--speeds=1,1,0.5] [--runs=1] [--format=table|csv]
//
// The real daemon and client, with workers that wait where others compute
// (tests/fakes/fake_worker.cc).  --plan is the width-aware search's for these
// inputs, the published planner's, every stage on all devices, the JSON of a
// job file's plan, or the daemon's, which searches once it has measured: count
// from step 8 on, then.  Beside that one stands the search's.  Progress goes to
// stderr; docs/design/measurements.md explains the quantities.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "tests/bench/fake_job.h"
#include "tests/bench/model_inputs.h"
#include "tests/bench/real_time_forecast.h"
#include "tests/bench/real_time_report.h"
#include "tests/bench/socket_loop.h"

ABSL_FLAG(std::string, inputs, "scheduler/testdata/bubble_inputs.csv",
          "costs per layer, model by model");
ABSL_FLAG(std::string, model, "qwen3-1.7b", "which row of them");
ABSL_FLAG(int, devices, 8, "fake devices");
ABSL_FLAG(int64_t, micro_batches, 16, "of a step, in one round");
ABSL_FLAG(int64_t, steps, 8, "of the job");
ABSL_FLAG(int64_t, first_step, 1, "those after it are counted");
ABSL_FLAG(double, scale, 1, "the inputs' times are multiplied by this");
ABSL_FLAG(std::string, plan, "searched",
          "searched, published, all-wide, daemon, or {\"forward\": ..., "
          "\"backward\": ...}");
ABSL_FLAG(bool, clip, true, "updates wait for the norm of all gradients");
ABSL_FLAG(double, pcie_gbps, 21, "10^9 bytes per second and direction");
ABSL_FLAG(double, host_gbps, 200, "host operations, 10^9 bytes per second");
ABSL_FLAG(std::vector<std::string>, speeds, {},
          "of device 0, 1 ...: one of 0.5 takes twice as long; what is not "
          "named has 1");
ABSL_FLAG(int, runs, 1, "of the job");
ABSL_FLAG(std::string, format, "table", "table (Markdown) or csv");

namespace roundhouse::bench {
namespace {

constexpr absl::Duration kTripPause = absl::Milliseconds(5);
// So rarely that they are not in the daemon's way.
constexpr absl::Duration kTripsAtOncePause = absl::Milliseconds(97);
constexpr int kMaxDevices = 62;

absl::Status CheckRange(const char* flag, double value, double low,
                        double high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--", flag, " must lie in ", low, "..", high, ", not ", value));
}

absl::Status CheckFlags() {
  RETURN_IF_ERROR(
      CheckRange("devices", absl::GetFlag(FLAGS_devices), 1, kMaxDevices));
  RETURN_IF_ERROR(CheckRange(
      "micro_batches", static_cast<double>(absl::GetFlag(FLAGS_micro_batches)),
      1, 256));
  RETURN_IF_ERROR(CheckRange(
      "steps", static_cast<double>(absl::GetFlag(FLAGS_steps)), 2, 1e6));
  RETURN_IF_ERROR(CheckRange(
      "first_step", static_cast<double>(absl::GetFlag(FLAGS_first_step)), 1,
      static_cast<double>(absl::GetFlag(FLAGS_steps) - 1)));
  RETURN_IF_ERROR(CheckRange("scale", absl::GetFlag(FLAGS_scale), 1e-3, 1e3));
  RETURN_IF_ERROR(
      CheckRange("pcie_gbps", absl::GetFlag(FLAGS_pcie_gbps), 0.1, 1e5));
  RETURN_IF_ERROR(
      CheckRange("host_gbps", absl::GetFlag(FLAGS_host_gbps), 0.1, 1e5));
  RETURN_IF_ERROR(CheckRange("runs", absl::GetFlag(FLAGS_runs), 1, 1000));
  const std::string format = absl::GetFlag(FLAGS_format);
  if (format == "table" || format == "csv") return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--format: table or csv, not \"", format, "\""));
}

absl::StatusOr<std::vector<double>> Speeds() {
  const std::vector<std::string> words = absl::GetFlag(FLAGS_speeds);
  if (words.size() > static_cast<size_t>(absl::GetFlag(FLAGS_devices))) {
    return absl::InvalidArgumentError("--speeds: more than --devices");
  }
  std::vector<double> speeds;
  for (const std::string& word : words) {
    if (!absl::SimpleAtod(word, &speeds.emplace_back())) {
      return absl::InvalidArgumentError(
          absl::StrCat("--speeds: \"", word, "\" is no number"));
    }
    RETURN_IF_ERROR(CheckRange("speeds", speeds.back(), 0.01, 100));
  }
  return speeds;
}

absl::StatusOr<FakeJobOptions> Options() {
  FakeJobOptions options;
  // `bazel run` starts programs in their runfiles.
  options.root = std::filesystem::current_path().string();
  const std::string path = absl::GetFlag(FLAGS_inputs);
  const std::string text = Contents(path);
  if (text.empty()) {
    return absl::NotFoundError(
        absl::StrCat("--inputs: ", path, " is empty or cannot be read"));
  }
  ASSIGN_OR_RETURN(options.costs,
                   FindModelCosts(text, path, absl::GetFlag(FLAGS_model)));
  options.devices = absl::GetFlag(FLAGS_devices);
  ASSIGN_OR_RETURN(options.speeds, Speeds());
  options.micro_batches = absl::GetFlag(FLAGS_micro_batches);
  options.steps = absl::GetFlag(FLAGS_steps);
  options.first_step = absl::GetFlag(FLAGS_first_step);
  options.scale = absl::GetFlag(FLAGS_scale);
  options.clip = absl::GetFlag(FLAGS_clip);
  options.pcie_gbps = absl::GetFlag(FLAGS_pcie_gbps);
  options.host_gbps = absl::GetFlag(FLAGS_host_gbps);
  const std::string plan = absl::GetFlag(FLAGS_plan);
  if (plan == "published") {
    ASSIGN_OR_RETURN(
        options.plan,
        PublishedPlanOf(options.costs, options.devices, kDeviceBytes));
  } else if (plan == "searched" || plan == "daemon") {
    options.daemons_plan = plan == "daemon";
    ASSIGN_OR_RETURN(options.plan, SearchedPlan(options));
  } else if (plan == "all-wide") {
    options.plan = AllWidePlan(options);
  } else {
    ASSIGN_OR_RETURN(options.plan, ParsePlanJson(plan, options.costs.layers));
  }
  return options;
}

absl::StatusOr<RealTimeRun> Measure(const FakeJobOptions& options) {
  ASSIGN_OR_RETURN(const DaemonJob job, MakeFakeJob(options));
  ASSIGN_OR_RETURN(const auto loop, SocketLoop::Create(1));
  ASSIGN_OR_RETURN(const auto wide_loop, SocketLoop::Create(options.devices));
  loop->Start(kTripPause);
  wide_loop->Start(kTripsAtOncePause);
  ASSIGN_OR_RETURN(DaemonJobResult result, RunDaemonJob(job));
  RealTimeRun run;
  run.work_ms = WorkMs(options.costs, options.plan) *
                static_cast<double>(options.micro_batches);
  ASSIGN_OR_RETURN(run.forecast, ForecastRealTime(options));
  run.samples = std::move(result.samples);
  run.use = result.use;
  run.cores = static_cast<int>(std::thread::hardware_concurrency());
  ASSIGN_OR_RETURN(run.trips, loop->Stop());
  ASSIGN_OR_RETURN(run.trips_at_once, wide_loop->Stop());
  if (HasLatencies(run)) return run;
  return absl::NotFoundError("no dispatch, or no round trip, in these steps");
}

RealTimeKey Key(const FakeJobOptions& options) {
  const std::string plan = absl::GetFlag(FLAGS_plan);
  RealTimeKey key;
  key.model = options.costs.name;
  key.plan = plan.front() == '{' ? "given" : plan;
  key.devices = options.devices;
  key.speed = MachineOf(options).TotalSpeed();
  key.micro_batches = options.micro_batches;
  key.first_step = options.first_step;
  key.steps = options.steps;
  key.scale = options.scale;
  key.clip = options.clip;
  return key;
}

absl::Status MeasureRuns(const FakeJobOptions& options) {
  std::cerr << options.costs.name
            << (options.daemons_plan ? ", beside plan " : ", plan ")
            << PlanJson(options.plan) << std::endl;
  const RealTimeKey key = Key(options);
  std::vector<std::vector<RealTimeRow>> runs;
  for (int run = 0; run < absl::GetFlag(FLAGS_runs); ++run) {
    ASSIGN_OR_RETURN(const RealTimeRun measured, Measure(options));
    runs.push_back(RealTimeRows(key, measured));
    // After an error the logs stay.
    std::filesystem::remove_all(options.scratch);
  }
  std::cout << (absl::GetFlag(FLAGS_format) == "csv" ? RealTimeCsv(key, runs)
                                                     : RealTimeMarkdown(runs));
  return absl::OkStatus();
}

absl::Status Main() {
  RETURN_IF_ERROR(CheckFlags());
  ASSIGN_OR_RETURN(FakeJobOptions options, Options());
  options.scratch =
      (std::filesystem::temp_directory_path() / "roundhouse.XXXXXX").string();
  if (mkdtemp(options.scratch.data()) == nullptr) {
    return absl::InternalError("cannot make " + options.scratch);
  }
  return MeasureRuns(options);
}

}  // namespace
}  // namespace roundhouse::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = roundhouse::bench::Main();
  if (status.ok()) return 0;
  std::cerr << "real_time: " << status.message() << "\n";
  return 1;
}
