#include "worker/program.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "base/files/file_fault.h"
#include "base/kill_point.h"
#include "base/log.h"
#include "base/status.h"
#include "base/wire/arena.h"
#include "base/wire/channel.h"
#include "base/wire/exit_status.h"
#include "worker/numa_node.h"
#include "worker/nursery.h"

ABSL_FLAG(std::string, role, "",
          "device, host, files, or nursery: what the others are forked from");
ABSL_FLAG(int, channel_fd, -1, "inherited SOCK_SEQPACKET to the daemon");
ABSL_FLAG(std::string, room, "",
          "nursery: not read; makes room for the flags of what is forked");
ABSL_FLAG(int, arena_fd, -1, "inherited memfd of the host arena");
ABSL_FLAG(int, lock_fd, -1,
          "inherited lock of the daemon, held until this process ends");
ABSL_FLAG(int, index, 0, "this worker's doorbell in the arena");
ABSL_FLAG(int, threads, 1, "compute threads");
ABSL_FLAG(std::string, device, "cpu",
          "device role: what computes; cpu or cuda:N");
ABSL_FLAG(std::string, cuda_visible_devices, "",
          "device role: the GPUs that CUDA shows this process; empty: as its "
          "environment says");
ABSL_FLAG(int, numa_node, -1,
          "device role: whose CPUs it runs on, beside its GPU; -1: any");
ABSL_FLAG(uint64_t, device_memory, uint64_t{1} << 30,
          "device role: bytes of device memory");
ABSL_FLAG(double, link_gbps, 0,
          "device role: throttle per direction in 10^9 bits per second; 0: "
          "none");
ABSL_FLAG(uint64_t, copy_chunk_bytes, 0,
          "device role: weights and gradients are copied this much at a time; "
          "0: as the device likes it");
ABSL_FLAG(bool, peers, false,
          "device role: sums of wide slots can be added up between devices");
ABSL_FLAG(std::string, kill_at, "",
          "test only: NAME:COUNT, die at the COUNT-th pass of a kill point, "
          "or break the device at that of a fault point");
ABSL_FLAG(std::string, file_fault_at, "",
          "test only: SITE:KIND[:HOWLONG[:AFTER]];..., the disk fails there");

namespace roundhouse::worker {
namespace {

// --device-memory=N is --device_memory=N.
void ParseFlags(std::vector<std::string> arguments) {
  std::vector<char*> flags;
  for (std::string& argument : arguments) {
    flags.push_back(argument.data());
    if (argument.compare(0, 2, "--") != 0) continue;
    const size_t end = std::min(argument.find('='), argument.size());
    std::replace(argument.begin() + 2,
                 argument.begin() + static_cast<std::ptrdiff_t>(end), '-', '_');
  }
  absl::ParseCommandLine(static_cast<int>(flags.size()), flags.data());
}

absl::Status CheckFlags() {
  const int index = absl::GetFlag(FLAGS_index);
  if (index < 0 || index >= wire::kMaxWorkers) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--index must lie in 0..", wire::kMaxWorkers - 1, ", not ", index));
  }
  if (absl::GetFlag(FLAGS_threads) < 1) {
    return absl::InvalidArgumentError("--threads must be at least 1");
  }
  if (absl::GetFlag(FLAGS_channel_fd) < 0 ||
      absl::GetFlag(FLAGS_arena_fd) < 0) {
    return absl::InvalidArgumentError(
        "--channel-fd and --arena-fd must be inherited descriptors: this "
        "program is started by roundhoused");
  }
  return absl::OkStatus();
}

// From here on the kernel kills this process with its daemon.  A daemon that
// died before that has closed its end of the channel.
absl::Status DieWithDaemon(const wire::Channel& channel) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
    return absl::InternalError(
        absl::StrCat("PR_SET_PDEATHSIG: ", std::strerror(errno)));
  }
  pollfd peer{channel.fd(), 0, 0};
  if (poll(&peer, 1, 0) < 0 || (peer.revents & (POLLHUP | POLLNVAL)) != 0) {
    return absl::UnavailableError("the daemon is gone already");
  }
  return absl::OkStatus();
}

// False in the nursery, when it is no longer needed.
absl::StatusOr<bool> LeaveNursery(int argc, char** argv) {
  SetLogName("nursery");
  ASSIGN_OR_RETURN(std::optional<std::vector<std::string>> arguments,
                   RunNursery(absl::GetFlag(FLAGS_channel_fd)));
  if (!arguments.has_value()) return false;
  ShowArguments(argc, argv, *arguments);
  arguments->insert(arguments->begin(), argv[0]);
  ParseFlags(*std::move(arguments));
  return true;
}

// CUDA reads it when it is initialised, which a nursery's fork has not been.
void ShowGpus() {
  const std::string gpus = absl::GetFlag(FLAGS_cuda_visible_devices);
  if (!gpus.empty()) setenv("CUDA_VISIBLE_DEVICES", gpus.c_str(), 1);
}

// Before there is any other thread.
void StayBesideGpu() {
  const int node = absl::GetFlag(FLAGS_numa_node);
  if (node < 0) return;
  const absl::Status status = RunOnNode(node);
  // It works from elsewhere too.
  if (!status.ok()) RH_LOG(kWarning) << "--numa-node: " << status.message();
}

absl::Status Serve(const RunRole& run) {
  RETURN_IF_ERROR(CheckFlags());
  StayBesideGpu();
  RETURN_IF_ERROR(ArmKillPoint(absl::GetFlag(FLAGS_kill_at)));
  RETURN_IF_ERROR(ArmFileFaults(absl::GetFlag(FLAGS_file_fault_at)));
  ShowGpus();
  wire::Channel channel(absl::GetFlag(FLAGS_channel_fd));
  RETURN_IF_ERROR(DieWithDaemon(channel));
  ASSIGN_OR_RETURN(const std::unique_ptr<wire::Arena> arena,
                   wire::Arena::Map(absl::GetFlag(FLAGS_arena_fd)));
  return run(absl::GetFlag(FLAGS_role),
             WorkerContext{channel, *arena, absl::GetFlag(FLAGS_index),
                           absl::GetFlag(FLAGS_threads)});
}

}  // namespace

DeviceFlags GetDeviceFlags() {
  return DeviceFlags{
      absl::GetFlag(FLAGS_device), absl::GetFlag(FLAGS_device_memory),
      absl::GetFlag(FLAGS_link_gbps), absl::GetFlag(FLAGS_copy_chunk_bytes),
      absl::GetFlag(FLAGS_peers)};
}

absl::Status UnknownRole(const std::string& role) {
  return absl::InvalidArgumentError(
      absl::StrCat("--role must be device, host or files, not \"", role, "\""));
}

int RunWorkerProgram(int argc, char** argv, const RunRole& run) {
  signal(SIGXFSZ, SIG_IGN);  // a write over the limit is an error like others
  ParseFlags(std::vector<std::string>(argv, argv + argc));
  if (absl::GetFlag(FLAGS_role) == "nursery") {
    const absl::StatusOr<bool> born = LeaveNursery(argc, argv);
    if (!born.ok()) RH_LOG(kError) << born.status().ToString();
    if (!born.ok() || !*born) return born.ok() ? 0 : 1;
  }
  const std::string name = absl::StrCat(absl::GetFlag(FLAGS_role), " worker ",
                                        absl::GetFlag(FLAGS_index));
  SetLogName(name.c_str());
  const absl::Status status = Serve(run);
  if (absl::IsUnavailable(status)) {
    RH_LOG(kInfo) << "the daemon is gone";
    return 0;
  }
  if (!status.ok()) {
    RH_LOG(kError) << status.ToString();
    const bool unable =
        absl::IsFailedPrecondition(status) || absl::IsUnimplemented(status);
    return unable ? wire::kUnableExit : 1;
  }
  return 0;
}

}  // namespace roundhouse::worker
