// For tests: a whole round through device workers equals the same computation
// without slots, bit for bit.
#ifndef ROUNDHOUSE_WORKER_SLOT_ROUND_CHECK_H_
#define ROUNDHOUSE_WORKER_SLOT_ROUND_CHECK_H_

#include <functional>
#include <vector>

#include "worker/slot/test_job.h"

namespace roundhouse::worker {

// Partitions of four layers and a head, M, G, dtypes, recompute modes, tied,
// adapters with dropout on packed rows, contributions in the model's dtype.
std::vector<RoundShape> AllRoundShapes();
// Some of them with experts, which runs that compute nothing do not know.
std::vector<RoundShape> ExpertRoundShapes();

// Looks at a finished round besides.
using RoundLook =
    std::function<void(SlotTestJob&, const std::vector<wire::RunSlot>&)>;

// Runs two rounds of `shape` on `devices` workers and checks every byte.
void CheckWholeRound(const RoundShape& shape, int devices,
                     const StageRunFactory& make_run,
                     const TestWorkerOptions& options = {},
                     const RoundLook& look = nullptr);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_SLOT_ROUND_CHECK_H_
