#include "server/workers/worker_arguments.h"

#include <stdlib.h>

#include "absl/strings/str_cat.h"
#include "base/files/file_fault.h"

namespace roundhouse {
namespace {

// Layers allocate and free tensors of tens of megabytes: with malloc's defaults
// each is mapped, filled with zeroes page by page and unmapped again.
constexpr char kMalloc[] =
    "GLIBC_TUNABLES=glibc.malloc.arena_max=1:glibc.malloc.mmap_max=0:"
    "glibc.malloc.trim_threshold=268435456:glibc.malloc.hugetlb=1";

void AddDevice(const ProcessPoolOptions& options, int device,
               std::vector<std::string>* arguments) {
  if (options.gpus.empty()) {
    arguments->push_back("--device=cpu");
  } else {
    // The only GPU that CUDA shows it.
    const wire::Gpu& gpu = options.gpus[device];
    arguments->push_back("--device=cuda:0");
    arguments->push_back(absl::StrCat("--cuda-visible-devices=", gpu.uuid));
    if (gpu.numa_node.has_value()) {
      arguments->push_back(absl::StrCat("--numa-node=", *gpu.numa_node));
    }
  }
  arguments->push_back(
      absl::StrCat("--device-memory=", options.device_memory_bytes));
  arguments->push_back(absl::StrCat("--link-gbps=", options.link_gbps));
  if (options.peers) arguments->push_back("--peers");
}

}  // namespace

const char* RoleName(WorkerRole role) {
  return role == WorkerRole::kDevice ? "device"
         : role == WorkerRole::kHost ? "host"
                                     : "files";
}

std::vector<std::string> WorkerArguments(const ProcessPoolOptions& options,
                                         const WorkerStart& start) {
  std::vector<std::string> arguments = {
      absl::StrCat("--role=", RoleName(start.role)),
      absl::StrCat("--index=", Number(start.id)),
      absl::StrCat("--threads=", start.threads),
      absl::StrCat("--channel-fd=", kFirstChildFd),
      absl::StrCat("--arena-fd=", kFirstChildFd + 1),
  };
  if (options.lock_fd >= 0) {
    arguments.push_back(absl::StrCat("--lock-fd=", kFirstChildFd + 2));
  }
  if (start.role == WorkerRole::kDevice) {
    AddDevice(options, Number(start.id), &arguments);
  }
  const std::string faults = ArmedFileFaults();
  if (start.role == WorkerRole::kFiles && !faults.empty()) {
    arguments.push_back(
        absl::StrCat("--file-fault-at=",
                     start.again ? FaultsThatDoNotKill(faults) : faults));
  }
  return arguments;
}

std::vector<std::string> WorkerEnvironment(int threads) {
  // Thread counts are part of the bits: no library may choose its own.
  std::vector<std::string> environment = {
      "OMP_DYNAMIC=FALSE",
      "MKL_DYNAMIC=FALSE",
      "LANG=C.UTF-8",
      absl::StrCat("OMP_NUM_THREADS=", threads),
      absl::StrCat("MKL_NUM_THREADS=", threads),
      kMalloc};
  for (const char* name : {"TSAN_OPTIONS", "ASAN_OPTIONS", "UBSAN_OPTIONS"}) {
    const char* value = getenv(name);
    if (value != nullptr) {
      environment.push_back(absl::StrCat(name, "=", value));
    }
  }
  return environment;
}

}  // namespace roundhouse
