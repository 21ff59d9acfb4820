// A StageRun without LibTorch, for tests of what is around it: cheap arithmetic
// in which every byte of input, weights, gradient, labels and positions shows,
// and with adapters the key of dropout masks.  Its bits, like the real one's,
// do not depend on stages or recomputation.
#ifndef ROUNDHOUSE_WORKER_SLOT_FAKE_STAGE_RUN_H_
#define ROUNDHOUSE_WORKER_SLOT_FAKE_STAGE_RUN_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "worker/slot/slot_computation.h"

namespace roundhouse::worker {

// Called on the compute thread at the start of each forward (backward = false)
// or backward call of a layer, the head's included; may block; an error is the
// layer's.
using FakeHook = std::function<absl::Status(int64_t layer, bool backward)>;

StageRunFactory FakeStageRuns(FakeHook hook = nullptr);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_SLOT_FAKE_STAGE_RUN_H_
