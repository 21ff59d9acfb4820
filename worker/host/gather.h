// HostOp kGather: the embedding rows of micro-batches, copied from the unit's
// compute copy into stage 0's input.
#ifndef ROUNDHOUSE_WORKER_HOST_GATHER_H_
#define ROUNDHOUSE_WORKER_HOST_GATHER_H_

#include <functional>

#include "absl/status/status.h"
#include "base/wire/arena.h"
#include "base/wire/messages.h"
#include "worker/host/chunk_pool.h"
#include "worker/host/job_view.h"

namespace roundhouse::worker {

// Fills and raises micro-batches in order.  Those whose word is already raised
// are passed over: bytes behind a raised word are never written again.  The
// caller has waited for op.version.  Positions with a negative token get row 0.
// INVALID_ARGUMENT naming the micro-batch: a bad buffer or token.
absl::Status Gather(wire::Arena& arena, const JobView& job,
                    const wire::HostOp& op, ChunkPool& pool,
                    const std::function<void()>& beat);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_HOST_GATHER_H_
