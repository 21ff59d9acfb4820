// The device role: the message loop around a SlotRunner.
#ifndef ROUNDHOUSE_WORKER_SLOT_DEVICE_WORKER_H_
#define ROUNDHOUSE_WORKER_SLOT_DEVICE_WORKER_H_

#include "absl/status/status.h"
#include "worker/context.h"
#include "worker/device/device.h"
#include "worker/slot/slot_runner.h"

namespace roundhouse::worker {

// Says Hello, then serves ConfigureJob, ReleaseJob, RunSlot, RunSample and
// Withdraw, with heartbeats, until Stop (OK) or until the daemon is gone
// (UNAVAILABLE).  Slots and samples not finished by then are given up without
// an answer.  A malformed or foreign message is logged and dropped.
absl::Status RunDeviceWorker(const WorkerContext& context, Device& device,
                             SlotRunnerOptions options);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_SLOT_DEVICE_WORKER_H_
