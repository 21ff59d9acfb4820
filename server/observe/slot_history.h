// What one device computed in the last minute, for people to look at: blocks of
// slots, with the gaps between them.
//
// Told by the device's compute thread in its order, as the DeviceLedger is.
// Bounded: short slots of a job that begin in the same kSlotBlockNs are one
// block, which counts them; where two jobs alternate faster than that, their
// blocks lie over each other.  Of several such jobs the oldest blocks go when
// there are too many, and since_ns() says so.
//
// Thread-compatible; times are CLOCK_MONOTONIC nanoseconds.
#ifndef ROUNDHOUSE_SERVER_OBSERVE_SLOT_HISTORY_H_
#define ROUNDHOUSE_SERVER_OBSERVE_SLOT_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/work_kinds.h"
#include "scheduler/plan/plan.h"

namespace roundhouse {

inline constexpr int64_t kSlotWindowNs = int64_t{60} * 1'000'000'000;
// A pixel or two of a picture of the window.
inline constexpr int64_t kSlotBlockNs = kSlotWindowNs / 600;
// Two jobs with the shortest of slots.
inline constexpr size_t kMaxSlotBlocks = 1210;

// The slot that a device begins.  None of its job: a sample.
struct SlotFacts {
  std::string job;  // its id; "": a sample
  int64_t step = 0;
  SlotKind kind = SlotKind::kForward;
  LayerRange layers;
};

// The bit of SlotBlock::passes; the status page numbers them from 0.
constexpr uint32_t PassBit(SlotKind kind) {
  return 1u << (static_cast<uint32_t>(kind) -
                static_cast<uint32_t>(SlotKind::kForward));
}

struct SlotBlock {
  std::string job;
  int64_t started_ns = 0;
  int64_t ended_ns = 0;
  int64_t compute_ns = 0;  // of that time
  int64_t slots = 0;
  uint32_t passes = 0;  // of PassBit
  int64_t first_step = 0;
  int64_t last_step = 0;
  LayerRange layers;  // from the lowest to the highest
};

class SlotHistory {
 public:
  explicit SlotHistory(int64_t now_ns) : since_ns_(now_ns) {}

  // A computation begins, after a wait of `waited_ns`.
  void Started(const SlotFacts& facts, int64_t at_ns, int64_t waited_ns);
  // It went on until `at_ns`, but for `waited_ns`.
  void Computed(int64_t at_ns, int64_t waited_ns);
  // The same, and is over.
  void Ended(int64_t at_ns, int64_t waited_ns);
  // A part of a backfill slot was computed, in a wait of the others; `first`:
  // none was before.
  void Backfilled(const SlotFacts& facts, int64_t began_ns, int64_t ended_ns,
                  bool first);
  // What it was computing, if anything, was given up or died with its worker.
  void GaveUp(int64_t now_ns);

  // The window's blocks in the order of their beginnings; one under way ends
  // now.
  std::vector<SlotBlock> Recent(int64_t now_ns) const;
  // What was before is not known any more, or never was.
  int64_t since_ns() const { return since_ns_; }

 private:
  SlotBlock* BlockFor(const SlotBlock& slot);
  void Keep(SlotBlock block);
  void Forget(int64_t before_ns);

  int64_t since_ns_;
  int64_t told_ns_ = 0;  // of `open_`: its computation is accounted up to here
  std::optional<SlotBlock> open_;
  std::deque<SlotBlock> blocks_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_OBSERVE_SLOT_HISTORY_H_
