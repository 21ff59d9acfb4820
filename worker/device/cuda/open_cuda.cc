#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "worker/device/cpu/cpu_device.h"
#include "worker/device/cuda/cuda_device.h"
#include "worker/device/open_device.h"

namespace roundhouse::worker {

absl::StatusOr<std::unique_ptr<Device>> OpenDevice(const std::string& name,
                                                   uint64_t memory_bytes) {
  if (name == "cpu") return NewCpuDevice(memory_bytes);
  absl::string_view number = name;
  CudaDeviceOptions options{.memory_bytes = memory_bytes};
  if (!absl::ConsumePrefix(&number, "cuda:") ||
      !absl::SimpleAtoi(number, &options.index) || options.index < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--device=", name, ": want cpu or cuda:N"));
  }
  auto device = NewCudaDevice(options);
  if (!device.ok()) {
    return absl::Status(
        device.status().code(),
        absl::StrCat("--device=", name, ": ", device.status().message()));
  }
  return device;
}

}  // namespace roundhouse::worker
