#include "worker/model/library_choices.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace roundhouse::worker {
namespace {

// The bits depend on the number of threads and on where cuBLAS adds up;
// LibTorch's allocator shares the device's pool
// (worker/device/cuda/cuda_device.h).
constexpr std::pair<const char*, const char*> kChoices[] = {
    {"OMP_DYNAMIC", "FALSE"},
    {"MKL_DYNAMIC", "FALSE"},
    {"CUBLAS_WORKSPACE_CONFIG", ":4096:8"},
    {"NCCL_SOCKET_IFNAME", "lo"},  // members are of this machine
    {"PYTORCH_ALLOC_CONF", "backend:cudaMallocAsync"},
    // These must not be there.  The older name would win ...
    {"PYTORCH_CUDA_ALLOC_CONF", nullptr},
    // ... fp32 products would be TF32, whatever LibTorch was told ...
    {"NVIDIA_TF32_OVERRIDE", nullptr},
    {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", nullptr},
    // ... and others would choose how a product is added up.
    {"CUBLASLT_WORKSPACE_SIZE", nullptr},
    {"TORCH_CUBLASLT_UNIFIED_WORKSPACE", nullptr},
    {"TORCH_BLAS_PREFER_CUBLASLT", nullptr}};

bool IsSame(const char* value, const char* wanted) {
  if (value == nullptr || wanted == nullptr) return value == wanted;
  return std::strcmp(value, wanted) == 0;
}

}  // namespace

absl::Status FixLibraryChoices(char** argv) {
  bool changed = false;
  for (const auto& [name, wanted] : kChoices) {
    const char* const value = std::getenv(name);
    if (IsSame(value, wanted)) continue;
    wanted == nullptr ? unsetenv(name) : setenv(name, wanted, 1);
    changed = true;
  }
  if (!changed) return absl::OkStatus();
  execv("/proc/self/exe", argv);
  return absl::InternalError(
      absl::StrCat("cannot start anew: ", std::strerror(errno)));
}

}  // namespace roundhouse::worker
