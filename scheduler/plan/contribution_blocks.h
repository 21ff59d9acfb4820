// How many places in host memory a job's rounds need for sums of gradients on
// their way from the devices to a reduction.
//
// A *block* is room for one sum of all that trains in one layer: a decoder
// layer, or the head.  A backward slot takes a block for each sum that it will
// send when it is sent to its device, and a layer's blocks are free again when
// the layer is reduced.  So what is needed follows from what is with the
// devices, not from the number of layers.
//
// Pure functions; thread-safe.
#ifndef ROUNDHOUSE_SCHEDULER_PLAN_CONTRIBUTION_BLOCKS_H_
#define ROUNDHOUSE_SCHEDULER_PLAN_CONTRIBUTION_BLOCKS_H_

#include <cstdint>

#include "scheduler/plan/plan.h"

namespace roundhouse {

struct ContributionBlocks {
  int64_t layers = 0;  // that all decoder layers share
  int64_t head = 0;

  friend bool operator==(const ContributionBlocks&,
                         const ContributionBlocks&) = default;
};

// For steps of `rounds` rounds (of one whose sums are held until the next one's
// slots run: 2), of which at most `most_sent` slots of the
// dispatcher are with devices at a time: room for the most sums that so many
// one after the other send, and for those of one slot of the plan that are
// being reduced; never more than what all of a round's sums take, of two rounds
// where the plan is one stage (then several rounds run at once).  No slot needs
// more, in a round of any size.
// REQUIRES: CheckPlan is OK, a fused plan, rounds and most_sent at least 1.
ContributionBlocks BlocksOf(const Plan& plan, int64_t rounds, int most_sent);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_PLAN_CONTRIBUTION_BLOCKS_H_
