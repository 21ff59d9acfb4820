#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker/device/cpu/cpu_device.h"
#include "worker/device/open_device.h"

namespace roundhouse::worker {

absl::StatusOr<std::unique_ptr<Device>> OpenDevice(const std::string& name,
                                                   uint64_t memory_bytes) {
  if (name == "cpu") return NewCpuDevice(memory_bytes);
  if (absl::StartsWith(name, "cuda:")) {
    return absl::FailedPreconditionError(
        absl::StrCat("--device=", name,
                     ": this worker was built without CUDA "
                     "(--config=cuda)"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--device=", name, ": this build has cpu only"));
}

}  // namespace roundhouse::worker
