// Pins for a device what the arena keeps, in the background: copies are right
// before, and faster after.
//
// Pieces (base/wire/layout.h) are pinned in their order, one by one: a call of
// CUDA that meets a registration may have to wait for it, and all of a large
// arena would take minutes.  A piece that the system does not pin is said once
// in the log, and it and those behind it stay as they are.
#ifndef ROUNDHOUSE_WORKER_TRANSFER_PINNED_ARENA_H_
#define ROUNDHOUSE_WORKER_TRANSFER_PINNED_ARENA_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/wire/arena.h"
#include "worker/device/device.h"

namespace roundhouse::worker {

class PinnedArena {
 public:
  // Both outlive it, and no copy is under way when it goes.  Starts a thread
  // unless the arena keeps no pages.
  PinnedArena(Device& device, const wire::Arena& arena);
  ~PinnedArena();
  PinnedArena(const PinnedArena&) = delete;
  PinnedArena& operator=(const PinnedArena&) = delete;

  // Pins what the arena has come to keep since.  Thread-safe; returns at once.
  void Update();

  // From the arena's start.
  uint64_t pinned_bytes() const { return pinned_bytes_; }

 private:
  void Run();
  bool AwaitWanted();  // false: it stops
  bool PinNext();      // false: the system pins no more
  uint64_t KeptBytes() const;

  Device& device_;
  const wire::Arena& arena_;
  std::vector<std::unique_ptr<PinnedHost>> pieces_;  // of the thread
  std::atomic<uint64_t> pinned_bytes_{0};
  Mutex mutex_;
  CondVar wake_;
  uint64_t wanted_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_TRANSFER_PINNED_ARENA_H_
