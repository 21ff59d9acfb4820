// The slots that are with this worker, in the order they were dispatched, the
// samples that wait, and what its threads tell each other about them.
//
//   main loop   Submit, Withdraw
//   feeder      looks at words, starts uploads, raises words, ends slots
//   compute     takes slots in order, waits for uploads, produces outputs;
//               between slots it computes samples
//   copy queues report each copy through Finished
//
// Slots of one job are computed in order.  One of another job overtakes the
// oldest slot when its turn (RunSlot::turn) is lower, or that one lacks its
// first input or weights; but only once everything that it reads itself is
// there: so it waits for nobody, and the order in which slots were sent stays
// one in which the first can go on.
//
// Device memory: a slot may take memory only beyond what every slot that is
// older, or computes, may still come to need, so these never wait for it, and
// the youngest ones are uploaded ahead as far as memory allows.  One that
// overtakes must find all that it may come to need.  Room is left beside for
// what a library takes while one of these computes (SlotPlan::working_bytes):
// of the one that takes most, for one computes at a time.  A sample takes all
// it needs at once, beyond what all slots may still come to need; slots that
// come while it computes wait for what it has, and the cache that it leaves is
// dropped for the first slot that needs the memory.
//
// Whose turn it is: the oldest slot's, once its first input is there; else a
// sample's.  A sample that was passed over kMaxPassedOver times is *due*: it
// goes first, and slots that come from then on go, and take memory, behind it.
// So it waits for no more than the slots that were here, which do not wait for
// it or for those behind it.
//
// Thread-safe.  `mutex` guards the slots; only leaf calls (Device::Allocate,
// atomics) are made under it.
#ifndef ROUNDHOUSE_WORKER_SLOT_SLOT_BOARD_H_
#define ROUNDHOUSE_WORKER_SLOT_SLOT_BOARD_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/wire/words.h"
#include "worker/device/device.h"
#include "worker/slot/sample_cache.h"
#include "worker/slot/sample_state.h"
#include "worker/slot/slot_state.h"

namespace roundhouse::worker {

class SlotBoard {
 public:
  using Slots = std::list<std::unique_ptr<SlotState>>;

  // How long a slot waits for memory that the count allows and the device
  // refuses, while nobody else computes or drains.
  static constexpr absl::Duration kMaxRefusal = absl::Seconds(5);
  // A device that refuses tells nobody when it has some.
  static constexpr absl::Duration kAskAgainEvery = absl::Milliseconds(10);

  // `doorbell` is this worker's own: the feeder sleeps on it.  Of the device's
  // limit `reserved_bytes` are none of the slots'.
  SlotBoard(Device& device, wire::Doorbell& doorbell,
            uint64_t reserved_bytes = 0,
            absl::Duration max_refusal = kMaxRefusal)
      : device_(device),
        doorbell_(doorbell),
        reserved_bytes_(reserved_bytes),
        max_refusal_(max_refusal) {}

  // RESOURCE_EXHAUSTED: kMaxDispatchedSlots are here already.
  absl::Status Add(std::unique_ptr<SlotState> slot);
  // Marks the attempt withdrawn, if it is here.
  void Withdraw(uint64_t attempt);
  // RESOURCE_EXHAUSTED: kMaxSampleCommands are here already.
  absl::Status AddSample(std::unique_ptr<SampleState> sample);
  // What is kept of the job's sample goes, now or when its command has ended.
  void ForgetSample(uint64_t job);
  // Every wait ends; NextToCompute returns nothing.
  void Stop();
  bool stopping() const { return stopping_.load(); }

  struct Work {
    SlotState* slot = nullptr;            // now kComputing
    std::unique_ptr<SampleState> sample;  // EndSample must follow
    SampleCache cache;                    // what was kept of the sample
  };
  // The slot or the sample whose turn it is; blocks.  Neither: the board stops.
  Work NextToCompute();
  // The sample taken last is over; it holds no memory but `cache`, which is
  // kept.
  void EndSample(SampleCache cache);

  // Blocks until ready() holds (called under `mutex`).  CANCELLED when the slot
  // is given up or the board stops.  Adds the time to `waited_ns`.
  absl::Status Await(SlotState& slot, const std::function<bool()>& ready,
                     int64_t* waited_ns);

  // Whether the slot is given up; looks at the cancel word too.
  bool GivenUp(SlotState& slot);

  // Blocks until ready() holds (called under `mutex`), even when the board
  // stops.
  void WaitUntil(const std::function<bool()>& ready);

  // Changes the slot under `mutex`, then wakes feeder and compute.
  void Update(const std::function<void()>& change);

  // The device's, but for what is reserved.
  DeviceMemory memory() const;

  // Somebody was refused memory for now, since it was forgotten last.
  bool memory_wanted() const { return memory_wanted_.load(); }
  void ForgetMemoryWanted() { memory_wanted_.store(false); }

  // Whether the device has refused somebody what the count allows, within a
  // second.  Holds `mutex`.
  bool AnyRefusedLately() const;

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
  uint64_t limit_bytes() const { return memory().limit_bytes; }
  // The following hold `mutex`.
  // Null where the device refuses although the count allows it, while another
  // slot or a sample computes or drains, or for kMaxRefusal: memory that a
  // library gave back may be the device's again only when its work is done.
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(
      SlotState& slot, uint64_t bytes, const std::string& what);
  bool MayHold(const SlotState& slot, uint64_t bytes);
  SlotState* FirstQueued() const;
  // Of the oldest queued slots of other jobs that may overtake `first`, the one
  // of the lowest turn.
  SlotState* Overtaker(const SlotState& first) const;
  bool MayOvertake(const SlotState& slot) const;
  bool SampleIsDue() const { return !samples_.empty() && samples_[0]->due(); }
  bool TakeWork(Work& work);
  bool TakeSample(Work& work);
  // What the slots may come to need, as far as a sample leaves it to them.
  uint64_t BytesBeforeSample() const;
  // A slot begins to compute: what is kept of a sample may be in its way.
  void LeaveRoomFor(const SlotState& slot);

  Device& device_;
  wire::Doorbell& doorbell_;
  const uint64_t reserved_bytes_;
  const absl::Duration max_refusal_;
  std::condition_variable changed_;
  // Guarded by `mutex`.
  std::deque<std::unique_ptr<SampleState>> samples_;  // waiting
  uint64_t sample_bytes_ = 0;   // of the one that computes; else 0
  uint64_t sample_job_ = 0;     // likewise
  bool forget_sample_ = false;  // likewise
  SampleCache kept_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> rung_{false};
  std::atomic<bool> memory_wanted_{false};
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_SLOT_SLOT_BOARD_H_
