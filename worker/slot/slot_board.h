// The slots that are with this worker, in the order they were dispatched, and
// what its threads tell each other about them.
//
//   main loop   Submit, Withdraw
//   feeder      looks at words, starts uploads, raises words, ends slots
//   compute     takes slots in order, waits for uploads, produces outputs
//   copy queues report each copy through Finished
//
// Device memory: a slot may take memory only beyond what every older slot may
// still come to need, so an older slot never waits for a younger one, and the
// youngest ones are uploaded ahead as far as memory allows.
//
// Thread-safe.  `mutex` guards the slots; only leaf calls (Device::Allocate,
// atomics) are made under it.
#ifndef ROUNDHOUSE_WORKER_SLOT_SLOT_BOARD_H_
#define ROUNDHOUSE_WORKER_SLOT_SLOT_BOARD_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "base/wire/words.h"
#include "worker/device/device.h"
#include "worker/slot/slot_state.h"

namespace roundhouse::worker {

class SlotBoard {
 public:
  using Slots = std::list<std::unique_ptr<SlotState>>;

  // `doorbell` is this worker's own: the feeder sleeps on it.
  SlotBoard(Device& device, wire::Doorbell& doorbell)
      : device_(device), doorbell_(doorbell) {}

  // RESOURCE_EXHAUSTED: kMaxDispatchedSlots are here already.
  absl::Status Add(std::unique_ptr<SlotState> slot);
  // Marks the attempt withdrawn, if it is here.
  void Withdraw(uint64_t attempt);
  // Every wait ends; NextToCompute returns null.
  void Stop();
  bool stopping() const { return stopping_.load(); }

  // The oldest slot whose computation has not begun, now kComputing; blocks.
  SlotState* NextToCompute();

  // Blocks until ready() holds (called under `mutex`).  CANCELLED when the slot
  // is given up or the board stops.  Adds the time to `waited_ns`.
  absl::Status Await(SlotState& slot, const std::function<bool()>& ready,
                     int64_t* waited_ns);

  // Whether the slot is given up; looks at the cancel word too.
  bool GivenUp(SlotState& slot);

  // Changes the slot under `mutex`, then wakes feeder and compute.
  void Update(const std::function<void()>& change);

  // Wakes the feeder.
  void RingFeeder();
  // Whether it was rung since the last call.
  bool TakeRing() { return rung_.exchange(false); }
  bool rung() const { return rung_.load(); }

  // A buffer of the slot's pool, null when there is none to be had now; `fresh`
  // says that it was never used.  Holds `mutex`.
  absl::StatusOr<DeviceBuffer*> TryTake(SlotState& slot, BufferPool& pool,
                                        bool* fresh = nullptr);
  // Memory for one of the slot's weights, null when there is none to be had
  // now.  Holds `mutex`.
  absl::StatusOr<DeviceBuffer*> TryTakeWeights(SlotState& slot, uint64_t bytes);

  std::mutex mutex;
  Slots slots;  // guarded by mutex; erased by the feeder only

 private:
  bool MayHold(const SlotState& slot, uint64_t bytes) const;
  SlotState* FirstQueued() const;

  Device& device_;
  wire::Doorbell& doorbell_;
  std::condition_variable changed_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> rung_{false};
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_SLOT_SLOT_BOARD_H_
