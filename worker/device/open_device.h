// The device that a worker's --device names.  What this build can open is
// chosen by linking: device/cpu/open_cpu.cc, or with --config=cuda
// device/cuda/open_cuda.cc.
#ifndef ROUNDHOUSE_WORKER_DEVICE_OPEN_DEVICE_H_
#define ROUNDHOUSE_WORKER_DEVICE_OPEN_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/device/device.h"

namespace roundhouse::worker {

// "cpu", or "cuda:N" where the build has CUDA; N counts what
// CUDA_VISIBLE_DEVICES leaves.  `memory_bytes` is the limit of all buffers.
// INVALID_ARGUMENT: no such name.  FAILED_PRECONDITION: the machine lacks the
// device, or the build lacks CUDA.
absl::StatusOr<std::unique_ptr<Device>> OpenDevice(const std::string& name,
                                                   uint64_t memory_bytes);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_DEVICE_OPEN_DEVICE_H_
