// A worker program that waits where roundhouse-worker computes, so that a
// daemon drives many devices in real time on a machine of two cores.  Torch-
// free.
//
//   roundhoused --devices=cpu:8 --worker-program=SCRIPT ...
//
// where SCRIPT adds this program's own flags to the daemon's:
//
//   #!/bin/sh
//   exec fake_worker --costs=costs.csv "$@"
//
// --costs        what each layer takes (tests/fakes/layer_costs.h)
// --cost-scale   times this
// --speeds       of devices 0, 1 ...: one of 0.5 takes twice as long; what is
//                not named has 1
// --host-gbps    host memory, read and written together, in 10^9 bits per
//                second as --link-gbps; 0: host operations take no time
// --upload-gbps  of uploads, in place of --link-gbps; 0: the same
// --command-ms   each slot's command arrives as much later
// --gather-ms, --update-ms
//                each gather, or update of a unit, takes as much longer
//
// Device role: everything that roundhouse-worker's does, in the same code, on
// a device (tests/fakes/fake_device.h) and with a model (fake_model.h) that
// only take time; --link-gbps is each direction's rate.  Host role:
// fake_host.h. Files role: the real one.
#include <sys/prctl.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "base/status.h"
#include "tests/fakes/fake_device.h"
#include "tests/fakes/fake_host.h"
#include "tests/fakes/fake_model.h"
#include "tests/fakes/layer_costs.h"
#include "tests/fakes/pace.h"
#include "tests/fakes/slow_commands.h"
#include "worker/context.h"
#include "worker/files/files_worker.h"
#include "worker/program.h"
#include "worker/slot/device_worker.h"

ABSL_FLAG(std::string, costs, "", "CSV file of what each layer takes");
ABSL_FLAG(double, cost_scale, 1, "the file's times are multiplied by this");
ABSL_FLAG(std::vector<std::string>, speeds, {},
          "how fast devices 0, 1 ... are");
ABSL_FLAG(double, host_gbps, 0,
          "host memory in 10^9 bits per second; 0: takes no time");
ABSL_FLAG(double, upload_gbps, 0,
          "uploads in 10^9 bits per second; 0: --link-gbps");
ABSL_FLAG(double, command_ms, 0, "each slot's command arrives as much later");
ABSL_FLAG(double, gather_ms, 0, "each gather takes as much longer");
ABSL_FLAG(double, update_ms, 0, "each update of a unit takes as much longer");

namespace roundhouse::fakes {
namespace {

using worker::WorkerContext;

absl::StatusOr<double> BytesPerSecond(const char* flag, double gbps) {
  if (gbps >= 0 && gbps <= 1e9) return gbps * 1e9 / 8;
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, " must lie in 0..1e9, not ", gbps));
}

absl::StatusOr<int64_t> Nanoseconds(const char* flag, double ms) {
  if (ms >= 0 && ms <= 1e6) return static_cast<int64_t>(ms * 1e6);
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, " must lie in 0..1e6, not ", ms));
}

absl::StatusOr<double> Speed(size_t device) {
  const std::vector<std::string> speeds = absl::GetFlag(FLAGS_speeds);
  if (device >= speeds.size()) return 1.0;
  double speed = 0;
  if (absl::SimpleAtod(speeds[device], &speed) && speed >= 1e-3 &&
      speed <= 1e3) {
    return speed;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--speeds must lie in 1e-3..1e3, not \"", speeds[device], "\""));
}

absl::StatusOr<std::vector<LayerCost>> Costs(int device) {
  const double scale = absl::GetFlag(FLAGS_cost_scale);
  if (!(scale > 0 && scale <= 1e6)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--cost-scale must lie above 0, at most 1e6, not ", scale));
  }
  ASSIGN_OR_RETURN(const double speed, Speed(static_cast<size_t>(device)));
  const std::string path = absl::GetFlag(FLAGS_costs);
  if (path.empty()) {
    return absl::InvalidArgumentError("--costs: a device worker needs it");
  }
  return ReadLayerCosts(path, scale / speed);
}

// It stands for a CPU's, or for the one GPU that CUDA would show it.
absl::Status CheckDevice(const std::string& device) {
  if (device == "cpu") return absl::OkStatus();
  const char* const gpu = std::getenv("CUDA_VISIBLE_DEVICES");
  if (device != "cuda:0" || gpu == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("--device=", device,
                     ": a fake worker's device is cpu, or cuda:0 with "
                     "CUDA_VISIBLE_DEVICES"));
  }
  RH_LOG(kInfo) << "stands for " << gpu;
  return absl::OkStatus();
}

absl::Status RunDevice(const WorkerContext& context) {
  const worker::DeviceFlags flags = worker::GetDeviceFlags();
  RETURN_IF_ERROR(CheckDevice(flags.device));
  ASSIGN_OR_RETURN(const std::vector<LayerCost> costs, Costs(context.index));
  FakeDeviceOptions device_options;
  device_options.memory_bytes = flags.memory_bytes;
  ASSIGN_OR_RETURN(device_options.link_bytes_per_second,
                   BytesPerSecond("link-gbps", flags.link_gbps));
  ASSIGN_OR_RETURN(
      device_options.upload_bytes_per_second,
      BytesPerSecond("upload-gbps", absl::GetFlag(FLAGS_upload_gbps)));
  FakeDevice device(std::move(device_options), MonotonicClock());
  worker::SlotRunnerOptions options;
  options.make_run = FakeStageRuns(device, costs);
  options.make_generation = FakeGenerations(device, costs);
  options.chunk_bytes = flags.copy_chunk_bytes;
  ASSIGN_OR_RETURN(const int64_t delay_ns,
                   Nanoseconds("command-ms", absl::GetFlag(FLAGS_command_ms)));
  if (delay_ns == 0) {
    return worker::RunDeviceWorker(context, device, std::move(options));
  }
  ASSIGN_OR_RETURN(
      const auto slow,
      SlowCommands::Create(context.channel, absl::Nanoseconds(delay_ns)));
  const WorkerContext behind{slow->channel(), context.arena, context.index,
                             context.threads};
  return worker::RunDeviceWorker(behind, device, std::move(options));
}

absl::Status RunHost(const WorkerContext& context) {
  FakeHostOptions options;
  ASSIGN_OR_RETURN(options.bytes_per_second,
                   BytesPerSecond("host-gbps", absl::GetFlag(FLAGS_host_gbps)));
  ASSIGN_OR_RETURN(options.gather_delay_ns,
                   Nanoseconds("gather-ms", absl::GetFlag(FLAGS_gather_ms)));
  ASSIGN_OR_RETURN(options.update_delay_ns,
                   Nanoseconds("update-ms", absl::GetFlag(FLAGS_update_ms)));
  return RunFakeHostWorker(context, options, MonotonicClock());
}

absl::Status Run(const std::string& role, const WorkerContext& context) {
  // Threads inherit it.  The kernel's default lets a sleeper sleep 50 us more.
  if (prctl(PR_SET_TIMERSLACK, 1) != 0) {
    return absl::InternalError(
        absl::StrCat("PR_SET_TIMERSLACK: ", std::strerror(errno)));
  }
  if (role == "device") return RunDevice(context);
  if (role == "host") return RunHost(context);
  if (role == "files") return worker::RunFilesWorker(context);
  return worker::UnknownRole(role);
}

}  // namespace
}  // namespace roundhouse::fakes

int main(int argc, char** argv) {
  return roundhouse::worker::RunWorkerProgram(argc, argv,
                                              &roundhouse::fakes::Run);
}
