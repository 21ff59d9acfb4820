#include "absl/strings/str_cat.h"
#include "worker/device/cpu/cpu_device.h"
#include "worker/device/open_device.h"

namespace roundhouse::worker {

absl::StatusOr<std::unique_ptr<Device>> OpenDevice(const std::string& name,
                                                   uint64_t memory_bytes) {
  if (name == "cpu") return NewCpuDevice(memory_bytes);
  return absl::InvalidArgumentError(
      absl::StrCat("--device=", name, ": this build has cpu only"));
}

}  // namespace roundhouse::worker
