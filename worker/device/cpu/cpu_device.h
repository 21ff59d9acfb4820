// A Device that is this process's CPU: device memory is heap memory apart from
// the arena, so that copies are real.  A stream works in the calling thread:
// its calls return when the work is done.
#ifndef ROUNDHOUSE_WORKER_DEVICE_CPU_CPU_DEVICE_H_
#define ROUNDHOUSE_WORKER_DEVICE_CPU_CPU_DEVICE_H_

#include <cstdint>
#include <memory>

#include "worker/device/device.h"

namespace roundhouse::worker {

// `memory_bytes` is the limit of all buffers together.  What the model
// allocates for itself inside a layer is not counted.
std::unique_ptr<Device> NewCpuDevice(uint64_t memory_bytes);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_DEVICE_CPU_CPU_DEVICE_H_
