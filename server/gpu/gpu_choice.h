// Which GPUs the daemon's devices are: what --devices asks for, of what the
// probe found.
//
// Pure.
#ifndef ROUNDHOUSE_SERVER_GPU_GPU_CHOICE_H_
#define ROUNDHOUSE_SERVER_GPU_GPU_CHOICE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/wire/gpu_report.h"
#include "base/wire/words.h"

namespace roundhouse {

// A worker each, beside the host and the files worker.
inline constexpr int kMaxDevices = wire::kMaxWorkers - 2;
// What a worker's process takes of its GPU beside the bytes that it counts:
// CUDA's context, kernels, the libraries' workspaces.  Reckoned.
inline constexpr uint64_t kGpuReserveBytes = uint64_t{2} << 30;

struct GpuRequest {
  bool all = false;               // "cuda": every GPU that can be used
  std::vector<uint32_t> indices;  // "cuda:LIST": these, in this order
};

// "cuda" or "cuda:0,2-5".  An index that is there several times is a GPU of
// several devices.  INVALID_ARGUMENT naming --devices: another form, a range
// that falls, more than kMaxDevices.
absl::StatusOr<GpuRequest> ParseGpuRequest(const std::string& devices);

struct GpuChoice {
  std::vector<wire::Gpu> gpus;        // of device 0, 1 ...; not empty
  std::vector<std::string> left_out;  // "GPU 3: GPU is lost"; of "cuda" only
};

// INVALID_ARGUMENT: an index that the machine does not have, or more GPUs than
// kMaxDevices.  FAILED_PRECONDITION: a named GPU cannot be used, or none can.
absl::StatusOr<GpuChoice> ChooseGpus(const GpuRequest& request,
                                     const wire::GpuReport& report);

// No GPU is there twice.
bool OneDeviceEach(const std::vector<wire::Gpu>& gpus);

// Whether each one can read and write the memory of every other one, as the
// driver says.  False of fewer than two, and where a GPU is there twice.
bool ReachEachOther(const std::vector<wire::Gpu>& gpus);

// The memory limit, one for all devices: `asked`, or if that is 0 what the
// fullest of `gpus` has free for each of its devices beside kGpuReserveBytes.
// INVALID_ARGUMENT naming --device-memory: a GPU's devices would have more than
// it has, or nothing is free or known.
absl::StatusOr<uint64_t> GpuMemoryLimit(const std::vector<wire::Gpu>& gpus,
                                        uint64_t asked);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_GPU_GPU_CHOICE_H_
