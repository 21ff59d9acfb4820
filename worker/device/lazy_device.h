// A Device in host memory that is as lazy as a GPU may be, for tests: a
// stream's work is done when somebody waits for it, in that thread, and not
// before.  Memory is filled with nonsense when it is made and when it is given
// back, so what was given back too early, or read too soon, shows in the
// numbers (and to AddressSanitizer).
//
// Thread-safe as a Device is; a stream's work never runs twice at a time.
#ifndef ROUNDHOUSE_WORKER_DEVICE_LAZY_DEVICE_H_
#define ROUNDHOUSE_WORKER_DEVICE_LAZY_DEVICE_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "worker/device/device.h"
#include "worker/device/pinned_ranges.h"

namespace roundhouse::worker {

std::unique_ptr<Device> NewLazyDevice(uint64_t memory_bytes);

// What such a device has pinned, and how much the system lets it.
PinnedRanges& PinnedOf(Device& device);

// Queues `work` on a stream of such a device (`stream.handle` is not null), as
// a library that computes does.  What it returns, if an error, is what waiting
// for it returns.
void QueueWork(const NativeStream& stream, std::function<absl::Status()> work);

// Blocks until everything queued on it is done; its first error.
absl::Status FinishWork(const NativeStream& stream);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_DEVICE_LAZY_DEVICE_H_
