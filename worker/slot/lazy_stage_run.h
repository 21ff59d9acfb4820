// StageRuns that compute on a lazy device (worker/device/lazy_device.h) as a
// library computes on a GPU: a call queues its work and returns.  For tests.
#ifndef ROUNDHOUSE_WORKER_SLOT_LAZY_STAGE_RUN_H_
#define ROUNDHOUSE_WORKER_SLOT_LAZY_STAGE_RUN_H_

#include "worker/slot/slot_computation.h"

namespace roundhouse::worker {

// Runs of `inner`, each call of which is made when the stream's work is waited
// for; on a stream that is not a lazy device's, those of `inner` themselves.
StageRunFactory LazyStageRuns(StageRunFactory inner);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_SLOT_LAZY_STAGE_RUN_H_
