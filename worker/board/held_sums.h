// What becomes of sums that stay on the device (SumPlace::kDevice): they go
// down after all, or another way was found and they are not needed any more.
//
// Holding is a favour: nobody who wants their memory waits for the daemon, and
// so for another device, longer than kHoldLimit; and nobody who waits for their
// slot to end longer than kLongestHold.  So a device that holds sums until
// another one has its own never makes that one wait for ever.
//
// Thread-safe.
#ifndef ROUNDHOUSE_WORKER_BOARD_HELD_SUMS_H_
#define ROUNDHOUSE_WORKER_BOARD_HELD_SUMS_H_

#include <cstdint>

#include "absl/time/time.h"
#include "base/wire/arena.h"
#include "worker/board/slot_board.h"
#include "worker/transfer/copy_queue.h"

namespace roundhouse::worker {

// An exchange comes as soon as the slowest part of a wide slot has its sums.
inline constexpr absl::Duration kHoldLimit = absl::Milliseconds(500);
inline constexpr absl::Duration kLongestHold = absl::Seconds(10);

class HeldSums {
 public:
  // All references outlive it.
  HeldSums(SlotBoard& board, CopyQueue& downloads, const wire::Arena& arena)
      : board_(board), downloads_(downloads), arena_(arena) {}

  // Nothing happens where they are not held (any more).
  void Download(uint64_t attempt, uint32_t unit);
  void Release(uint64_t attempt, uint32_t unit);

  // Downloads what has been held for kLongestHold, or for kHoldLimit if
  // somebody was refused memory.  Not what is exchanged,
  // or was: the slice may count already.  That waits for the other members,
  // which exchange too, and at worst for the daemon to give up the group.
  void MakeRoom(int64_t now_ns);

  // No slot: they are not held.
  TakenSums TakeForExchange(uint64_t attempt, uint32_t unit);
  // `whole`: the slice is down.
  void Return(TakenSums taken, bool whole);

 private:
  void Send(TakenSums leaving);

  SlotBoard& board_;
  CopyQueue& downloads_;
  const wire::Arena& arena_;
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_BOARD_HELD_SUMS_H_
