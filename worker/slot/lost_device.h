// What a worker does when its device is lost (an error after which CUDA wants a
// new process, a GPU that fell off its bus): it ends, and says so to nobody but
// its log.  The daemon treats it as any death: starts another, and sends the
// slots again.
#ifndef ROUNDHOUSE_WORKER_SLOT_LOST_DEVICE_H_
#define ROUNDHOUSE_WORKER_SLOT_LOST_DEVICE_H_

#include "absl/status/status.h"

namespace roundhouse::worker {

// Ends the process with status 1, at once, if `status` is a device's ABORTED
// (worker/device/device.h); CUDA's own destructors could wait for ever.
void EndProcessIfLost(const absl::Status& status);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_SLOT_LOST_DEVICE_H_
