// What a worker does when its device is lost (an error after which CUDA wants a
// new process, a GPU that fell off its bus): it ends, and says so to nobody but
// its log.  The daemon treats it as any death: starts another, and sends the
// slots again.
#ifndef ROUNDHOUSE_WORKER_BOARD_LOST_DEVICE_H_
#define ROUNDHOUSE_WORKER_BOARD_LOST_DEVICE_H_

#include "absl/status/status.h"

namespace roundhouse::worker {

// Ends the process with status 1, at once, if `status` is a device's ABORTED
// (worker/device/device.h); CUDA's own destructors could wait for ever.
void EndProcessIfLost(const absl::Status& status);

// The same where it is RESOURCE_EXHAUSTED: what the count of bytes allows and
// the device refuses is there in pieces, and another process has it whole.
void EndProcessIfExhausted(const absl::Status& status);

// From now on an exception that nobody catches ends the process the same way,
// its first line in the log: LibTorch frees the tensors of a lost device, and
// throws where nothing may.  Not std::abort's way, which would write the arena
// into a core file.
void EndProcessOnTerminate();

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_BOARD_LOST_DEVICE_H_
