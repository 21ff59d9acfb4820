// Which causes a wait of the compute thread belongs to
// (base/wire/wait_cause.h).
//
// What was waited for became ready through milestones, in their order: the slot
// was sent, a word raised, memory found, a copy made.  The time before each one
// belongs to its cause, so that a wait is charged to what came late and not to
// what had to follow it.
//
// Pure functions.
#ifndef ROUNDHOUSE_WORKER_BOARD_WAIT_SPLIT_H_
#define ROUNDHOUSE_WORKER_BOARD_WAIT_SPLIT_H_

#include <cstdint>

#include "absl/types/span.h"
#include "base/wire/messages.h"

namespace roundhouse::worker {

struct Milestone {
  int64_t reached_ns = 0;  // CLOCK_MONOTONIC; 0: before anybody waited for it
  wire::WaitCause cause = wire::WaitCause::kH2D;
};

// Adds [began_ns, ended_ns) to `waits`; what comes after the last milestone is
// the last one's.  REQUIRES: at least one milestone.
void SplitWait(int64_t began_ns, int64_t ended_ns,
               absl::Span<const Milestone> milestones, wire::WaitTimes& waits);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_BOARD_WAIT_SPLIT_H_
