#include "server/machine.h"

#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "server/gpu/gpu_choice.h"
#include "server/gpu/gpu_probe.h"
#include "server/workers/descriptor_limit.h"
#include "server/workers/dispatch_priority.h"

namespace roundhouse {

absl::StatusOr<std::vector<wire::Gpu>> FindGpus(
    DaemonOptions& options, const std::set<std::string>& lent) {
  if (!options.gpus.has_value()) return std::vector<wire::Gpu>();
  const auto report =
      ProbeGpusNow({options.gpu_probe, options.gpu_probe_limit});
  if (!report.ok()) {
    return absl::Status(
        report.status().code(),
        absl::StrCat("--devices=cuda: ", report.status().message()));
  }
  ASSIGN_OR_RETURN(GpuChoice choice, ChooseGpus(*options.gpus, *report));
  for (wire::Gpu& gpu : choice.gpus) {
    if (lent.contains(gpu.uuid)) gpu.memory_free_bytes = gpu.memory_total_bytes;
  }
  ASSIGN_OR_RETURN(options.device_memory_bytes,
                   GpuMemoryLimit(choice.gpus, options.device_memory_bytes));
  options.device_count = static_cast<int>(choice.gpus.size());
  for (const std::string& gpu : choice.left_out) {
    RH_LOG(kWarning) << gpu << "; starting with " << choice.gpus.size()
                     << " of " << report->gpus.size() << " GPUs";
  }
  for (size_t i = 0; i < choice.gpus.size(); ++i) {
    const wire::Gpu& gpu = choice.gpus[i];
    RH_LOG(kInfo) << "device " << i << " is GPU " << gpu.index << ", "
                  << gpu.name << ", " << gpu.uuid;
  }
  return std::move(choice.gpus);
}

void RaiseDescriptors() {
  const uint64_t limit = RaiseDescriptorLimit();
  if (limit >= kFewDescriptors) return;
  RH_LOG(kWarning) << "at most " << limit
                   << " descriptors (ulimit -Hn): fewer clients are let in; "
                   << kFewDescriptors << " or more are better";
}

bool GoBeforeCompute(const DaemonOptions& options) {
  if (!options.realtime) return false;
  const absl::Status put = PutBeforeCompute(0, DispatchThread::kLoop);
  if (!put.ok()) {
    RH_LOG(kInfo) << "slots are passed on at ordinary priority: "
                  << put.message() << " (docs/operations.md)";
  }
  return put.ok();
}

// One device alone has none to exchange with, two on one GPU cannot.
absl::StatusOr<bool> UsesPeers(const DaemonOptions& options,
                               const std::vector<wire::Gpu>& gpus) {
  if (options.peers == PeerChoice::kOff || options.device_count < 2) {
    return false;
  }
  if (options.peers == PeerChoice::kAuto) return ReachEachOther(gpus);
  if (OneDeviceEach(gpus)) return true;
  return absl::InvalidArgumentError(
      "--peers=on: a GPU is there several times in --devices");
}

absl::StatusOr<ProcessPoolOptions> PoolOptions(const DaemonOptions& options,
                                               int lock_fd) {
  ProcessPoolOptions pool;
  pool.worker_program = options.worker_program;
  pool.device_count = options.device_count;
  pool.device_threads = options.device_threads;
  pool.host_threads = options.host_threads;
  pool.device_memory_bytes = options.device_memory_bytes;
  pool.link_gbps = options.link_gbps;
  pool.lock_fd = lock_fd;
  for (const auto& [name, points] : options.worker_kill_at) {
    int index = 0;
    if (name == "host") {
      index = options.device_count;
    } else if (name == "files") {
      index = options.device_count + 1;
    } else if (!absl::SimpleAtoi(name, &index)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--worker-kill-at: no worker \"", name, "\""));
    }
    pool.kill_at[static_cast<WorkerId>(index)] = points;
  }
  return pool;
}

}  // namespace roundhouse
