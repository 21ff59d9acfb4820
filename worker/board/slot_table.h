// The slots that are with this worker, in the order they were dispatched, and
// the samples that wait: whose turn it is, and who may take device memory.
//
// Slots of one job are computed in order.  One of another job overtakes the
// oldest slot when its turn (SlotState::turn) is lower, or that one lacks its
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
// Slots of backfill jobs (base/turns.h) stand apart.  They are computed by a
// thread of their own, one at a time, in the waits of the others
// (compute_turns.h), and only once everything that they read is there: so no
// other slot waits for one but for its memory, and it waits for nobody.  One
// takes its first memory only where it and all the others have all that they
// may come to need; what they may come to need counts from then on for every
// slot that comes later.  Room is left beside for what a library takes for one
// of each.
//
// Whose turn it is: the oldest slot's, once its first input is there; else a
// sample's.  A sample that was passed over kMaxPassedOver times is *due*: it
// goes first, and slots that come from then on go, and take memory, behind it.
// So it waits for no more than the slots that were here, which do not wait for
// it or for those behind it.
//
// Owner: the SlotBoard, under whose mutex all of it is called.  Calls nothing
// but Device::Allocate and Device::memory.
#ifndef ROUNDHOUSE_WORKER_BOARD_SLOT_TABLE_H_
#define ROUNDHOUSE_WORKER_BOARD_SLOT_TABLE_H_

#include <cstdint>
#include <deque>
#include <initializer_list>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/board/sample_cache.h"
#include "worker/board/sample_state.h"
#include "worker/board/slot_state.h"
#include "worker/device/device.h"

namespace roundhouse::worker {

// The sums of one unit, in the hands of whoever took them.  The slot stays
// until they are returned or their downloads have begun.
struct TakenSums {
  Slot* slot = nullptr;  // null: they were not held
  size_t unit = 0;       // a position in RunSlot::units
  std::vector<HeldSum> sums;
};

// How long sums are held at most.
struct HoldLimits {
  absl::Duration memory_wanted;  // while somebody was refused memory
  absl::Duration otherwise;
};

class SlotTable {
 public:
  using Slots = std::list<std::unique_ptr<SlotState>>;
  using State = HeldUnit::State;

  // How long a slot waits for memory that the count allows and the device
  // refuses, while nobody else computes or drains.
  static constexpr absl::Duration kMaxRefusal = absl::Seconds(5);

  // `reserved_bytes` of the device's limit are none of the slots'.
  SlotTable(Device& device, uint64_t reserved_bytes, absl::Duration max_refusal)
      : device_(device),
        reserved_bytes_(reserved_bytes),
        max_refusal_(max_refusal) {}

  // The device's, but for what is reserved.  Thread-safe.
  DeviceMemory memory() const;

  // RESOURCE_EXHAUSTED: kMaxDispatchedSlots are here already.
  absl::Status Add(std::unique_ptr<SlotState> slot);
  // Null: it is not here.
  SlotState* Find(uint64_t attempt);
  Slots& slots() { return slots_; }

  // RESOURCE_EXHAUSTED: kMaxSampleCommands are here already.
  absl::Status AddSample(std::unique_ptr<SampleState> sample);
  // What is kept of the job's sample goes, now or when its command has ended.
  void ForgetSample(uint64_t job);
  // The sample taken last is over; it holds no memory but `cache`, which is
  // kept.
  void EndSample(SampleCache cache);

  struct Work {
    SlotState* slot = nullptr;            // now kComputing
    std::unique_ptr<SampleState> sample;  // EndSample must follow
    SampleCache cache;                    // what was kept of the sample
  };
  // The slot or the sample whose turn it is, of those that are no backfill;
  // false: nobody's.
  bool TakeWork(Work& work);
  // The backfill slot whose turn it is, now kComputing; null: none's.
  SlotState* TakeBackfill();
  // Others than backfill slots are here that are not computed yet.
  bool HasOthers() const;

  // A buffer of the slot's pool, null when there is none to be had now; `fresh`
  // says that it was never used.
  absl::StatusOr<DeviceBuffer*> TryTake(SlotState& slot, BufferPool& pool,
                                        bool* fresh = nullptr);
  // Memory for one of the slot's weights, null when there is none to be had
  // now.
  absl::StatusOr<DeviceBuffer*> TryTakeWeights(SlotState& slot, uint64_t bytes);
  // Whether the device has refused what the count allows, within a second: the
  // slot, or somebody.
  static bool RefusedLately(const SlotState& slot, int64_t now_ns);
  bool AnyRefusedLately() const;

  // Sums that are held (held_sums.h).  Those to download may have been
  // exchanged before.
  TakenSums TakeSumsToDownload(uint64_t attempt, uint32_t unit);
  TakenSums TakeSumsToExchange(uint64_t attempt, uint32_t unit);
  // All that were held for as long as the limits say, to download.
  std::vector<TakenSums> TakeSumsHeldTooLong(int64_t now_ns,
                                             const HoldLimits& limits);
  void ReturnSums(SlotState& slot, size_t unit, std::vector<HeldSum> sums,
                  State state);
  // Sums whose slice is down need not go down, if there are any.
  void ReleaseSlicedSums(uint64_t attempt, uint32_t unit);

 private:
  struct Held {
    SlotState* slot = nullptr;
    size_t unit = 0;
  };

  uint64_t limit_bytes() const { return memory().limit_bytes; }
  // Null where the device refuses although the count allows it, while another
  // slot or a sample computes or drains, or for kMaxRefusal: memory that a
  // library gave back may be the device's again only when its work is done.
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(
      SlotState& slot, uint64_t bytes, const std::string& what);
  bool MayHold(const SlotState& slot, uint64_t bytes);
  bool ComputesBackfill() const;
  // What `other` may come to need, or holds, that `slot` has to leave.
  struct Claim {
    uint64_t committed = 0;
    uint64_t held = 0;  // where it takes no more than now
    bool works = false;
  };
  static Claim ClaimOn(const SlotState& slot, const SlotState& other,
                       bool older);
  // The oldest that has not begun and is no backfill.
  SlotState* FirstQueued() const;
  // Among the oldest queued slots of other jobs that may overtake `first`, and
  // are no backfill: the one of the lowest turn.
  SlotState* Overtaker(const SlotState& first) const;
  bool MayOvertake(const SlotState& slot) const;
  bool SampleIsDue() const { return !samples_.empty() && samples_[0]->due(); }
  bool TakeSample(Work& work);
  // What the slots may come to need, as far as a sample leaves it to them.
  uint64_t BytesBeforeSample() const;
  // A slot begins to compute: what is kept of a sample may be in its way.
  void LeaveRoomFor(const SlotState& slot);
  // Null slot: not held in any of the states.
  Held FindHeld(uint64_t attempt, uint32_t unit,
                std::initializer_list<State> states);
  TakenSums TakeSums(const Held& held, State next);

  Device& device_;
  const uint64_t reserved_bytes_;
  const absl::Duration max_refusal_;
  Slots slots_;
  std::deque<std::unique_ptr<SampleState>> samples_;  // waiting
  uint64_t sample_bytes_ = 0;   // of the one that computes; else 0
  uint64_t sample_job_ = 0;     // likewise
  bool forget_sample_ = false;  // likewise
  SampleCache kept_;
  bool memory_wanted_ = false;  // somebody was refused memory for now
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_BOARD_SLOT_TABLE_H_
