// What a device's link carries, found out by copies when it is opened.
#ifndef ROUNDHOUSE_WORKER_DEVICE_MEASURE_LINK_H_
#define ROUNDHOUSE_WORKER_DEVICE_MEASURE_LINK_H_

#include "absl/status/statusor.h"
#include "worker/device/device.h"

namespace roundhouse::worker {

// The bandwidth of copies with pinned memory, each way by itself. It takes some
// 25 ms on PCIe 4.0, 64 MiB of the device's memory and as much of the host's.
// It is unknown, and no error, if the device's limit is less: it is none to
// train on. Errors are the device's; RESOURCE_EXHAUSTED: the host has no
// memory.
absl::StatusOr<LinkBandwidth> MeasureLink(Device& device);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_DEVICE_MEASURE_LINK_H_
