// What the threads of a device worker tell each other about its slots and
// samples (slot_table.h says whose turn it is and who may take memory).
//
//   main loop   Add, Withdraw, ...: commands
//   feeder      LookAtSlots: starts uploads, raises words, ends slots
//   compute     takes slots in order, waits for uploads, produces outputs;
//               between slots it computes samples
//   backfill    takes slots of backfill jobs, and computes them in the waits of
//               the compute thread
//   copy queues report each copy: EndUpload, EndDownload, ...
//   exchange    takes a unit's sums and returns them (peer_exchange.h)
//
// Thread-safe: each method takes the board's own mutex, and everything else of
// a slot than what is in Slot is reached under it only.  A Slot stays until the
// feeder has got it back from LookAtSlots as ended: not while it computes, a
// copy of it is in flight, or somebody has sums of it.  Under the mutex only
// leaf calls are made (Device::Allocate, atomics).
#ifndef ROUNDHOUSE_WORKER_BOARD_SLOT_BOARD_H_
#define ROUNDHOUSE_WORKER_BOARD_SLOT_BOARD_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/wire/words.h"
#include "worker/board/compute_turns.h"
#include "worker/board/sample_cache.h"
#include "worker/board/sample_state.h"
#include "worker/board/slot_state.h"
#include "worker/board/slot_table.h"
#include "worker/board/upload_feed.h"
#include "worker/device/device.h"

namespace roundhouse::worker {

// What a copy to the arena is of.
struct CopiedPart {
  enum class Kind { kOutput, kSum };
  Kind kind = Kind::kSum;
  size_t index = 0;  // in RunSlot::outputs or RunSlot::units
};

class SlotBoard {
 public:
  // A device that refuses memory tells nobody when it has some.
  static constexpr absl::Duration kAskAgainEvery = absl::Milliseconds(10);

  // `doorbell` is this worker's own: the feeder sleeps on it.  The rest as
  // SlotTable has it.
  SlotBoard(Device& device, wire::Doorbell& doorbell,
            uint64_t reserved_bytes = 0,
            absl::Duration max_refusal = SlotTable::kMaxRefusal)
      : doorbell_(doorbell), table_(device, reserved_bytes, max_refusal) {}

  // --- main loop ---

  // RESOURCE_EXHAUSTED: kMaxDispatchedSlots are here already.
  absl::Status Add(std::unique_ptr<SlotState> slot);
  // Marks the attempt withdrawn, if it is here.
  void Withdraw(uint64_t attempt);
  // No effect on a slot that is not here, or has begun.
  void SetTurn(uint64_t attempt, uint64_t turn);
  // RESOURCE_EXHAUSTED: kMaxSampleCommands are here already.
  absl::Status AddSample(std::unique_ptr<SampleState> sample);
  // What is kept of the job's sample goes, now or when its command has ended.
  void ForgetSample(uint64_t job);
  // Every wait ends; NextToCompute returns nothing.
  void Stop();
  bool stopping() const { return stopping_.load(); }
  // The device's, but for what is reserved.
  DeviceMemory memory() const;

  // --- compute ---

  struct Work {
    Slot* slot = nullptr;                 // EndCompute must follow
    bool fills_bubble = false;            // the oldest one lacked its inputs
    std::unique_ptr<SampleState> sample;  // EndSample must follow
    SampleCache cache;                    // what was kept of the sample
  };
  // Told around each wait of the compute thread or of the backfill thread,
  // without locks: Begin, before it waits, and End.  Both may block.
  class WaitWatch {
   public:
    virtual ~WaitWatch() = default;
    virtual void Begin() = 0;
    virtual void End() = 0;
  };
  // The slot or the sample whose turn it is; blocks.  Neither: the board stops.
  Work NextToCompute(WaitWatch& watch);
  // The same for the backfill thread: its slots alone.
  Work NextBackfill();
  // As SlotTable has it.
  bool HasOthers() const;
  // Whose the device is.
  ComputeTurns& turns() { return turns_; }
  // OK: it is computed whole; its inputs and weights go.  Else it is given up.
  void EndCompute(Slot& slot, absl::Status status, ComputeRecord record);

  // Whether the slot is given up; looks at the cancel word too.
  bool GivenUp(Slot& slot);

  // The waits for a slot add the time that they took to `waited_ns`.
  // CANCELLED: the slot is given up, or the board stops.
  //
  // Bytes that are on the device, and when they came; 0: nobody waited for
  // that.  They stay until ReleaseUploads, weights until EndCompute.
  struct Arrived {
    DeviceBuffer* buffer = nullptr;
    int64_t published_ns = 0;  // in the arena
    int64_t granted_ns = 0;    // had a buffer, if one was refused before
    int64_t there_ns = 0;
  };
  absl::StatusOr<Arrived> AwaitUpload(Slot& slot, const UploadName& upload,
                                      WaitWatch& watch, int64_t* waited_ns);
  // When RunSlot::gather_begun was reached; 0: nobody waited for it.
  int64_t GatherBegunNs(Slot& slot);
  void ReleaseUploads(Slot& slot, size_t micro_batch);

  struct Taken {
    DeviceBuffer* buffer = nullptr;
    bool fresh = false;  // never used before
    // All that it may have were there meanwhile: one was on its way down.
    bool awaited_download = false;
  };
  absl::StatusOr<Taken> AwaitBuffer(Slot& slot, const PoolName& pool,
                                    WaitWatch& watch, int64_t* waited_ns);
  void GiveBuffer(Slot& slot, const PoolName& pool, DeviceBuffer* buffer);

  // Its word was raised by an attempt before this one.
  void SettleReplayedOutput(Slot& slot, size_t output);
  // The sum stays on the device.  True: it is the unit's last one, and all are
  // held from now on.
  bool HoldSum(Slot& slot, size_t unit, HeldSum sum);

  // The sample taken last is over; it holds no memory but `cache`, which is
  // kept.
  void EndSample(SampleCache cache);
  // Copies of the sample taken last.  Each that was begun ends; `there` becomes
  // true if it was made.
  void BeginSampleCopy();
  void EndSampleCopy(std::atomic<bool>& there, absl::Status status);
  // The copy was not queued.
  void TakeBackSampleCopy();
  // CANCELLED: the board stops; else why a copy of the sample failed.
  absl::Status AwaitSampleCopy(const std::atomic<bool>& there);
  // Even when the board stops.
  void AwaitSampleCopies();

  // --- copies ---

  // The slot stays until the copy has ended.
  void BeginCopy(Slot& slot);
  void EndUpload(Slot& slot, const UploadName& upload, absl::Status status);
  // The buffer is back in its pool.
  void EndDownload(Slot& slot, const PoolName& pool, DeviceBuffer* buffer,
                   const CopiedPart& part, absl::Status status);
  // The copy was not queued.
  void TakeBackCopy(Slot& slot);
  void Fail(Slot& slot, absl::Status why);
  void FailUnlessAbandoned(Slot& slot, absl::Status why);

  // --- held sums: as SlotTable has it ---

  TakenSums TakeSumsToDownload(uint64_t attempt, uint32_t unit);
  TakenSums TakeSumsToExchange(uint64_t attempt, uint32_t unit);
  std::vector<TakenSums> TakeSumsHeldTooLong(int64_t now_ns,
                                             const HoldLimits& limits);
  void ReturnSums(TakenSums taken, HeldUnit::State state);
  // Sums taken to download have begun to go, and keep the slot themselves.
  void EndTaking(Slot& slot) { TakeBackCopy(slot); }
  void ReleaseSlicedSums(uint64_t attempt, uint32_t unit);

  // --- feeder ---

  // Adds to `step` what the feeder has to do now.
  void LookAtSlots(const UploadFeed& feed, FeedStep& step);
  void SettleOutput(Slot& slot, size_t output);
  // Somebody who waits may have a reason to go on.
  void WakeAll();
  // Whether the feeder was rung since the last call.
  bool TakeRing() { return rung_.exchange(false); }
  bool rung() const { return rung_.load(); }

 private:
  // The only way from a slot to its state.
  SlotState& StateOf(Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return static_cast<SlotState&>(slot);
  }
  bool Over(const Slot& slot) const { return stopping() || slot.abandoned; }
  // Until something may have changed.
  void AwaitChange(Slot* slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Until `done` or the slot is over (null: the board stops), both looked at
  // under the mutex; how long that took.  `watch` is told if it is not at once.
  int64_t AwaitWatched(WaitWatch& watch, Slot* slot,
                       absl::FunctionRef<bool()> done);
  void RingFeeder();

  wire::Doorbell& doorbell_;
  mutable Mutex mutex_;
  CondVar changed_;
  SlotTable table_ ABSL_GUARDED_BY(mutex_);
  int sample_copies_ ABSL_GUARDED_BY(mutex_) = 0;  // in flight
  absl::Status sample_failure_ ABSL_GUARDED_BY(mutex_);
  ComputeTurns turns_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> rung_{false};
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_BOARD_SLOT_BOARD_H_
