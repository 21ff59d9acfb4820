// Chunk by chunk, so that a killed worker's successor can go on
// (docs/design/wire.md, "Journal").
//
//   compute into a scratch slot -> journal word: ready, slot
//   copy into place             -> journal word: done
//
//   none --> ready --> done        (of one operation; an older operation's
//                                   word counts as none)
//
// Until `ready` nothing but the scratch slot has changed, so the chunk can be
// computed again from its inputs; from `ready` on the scratch slot holds the
// result, so it can be copied again.  A slot is reused only after `done`.
#ifndef ROUNDHOUSE_WORKER_HOST_JOURNAL_H_
#define ROUNDHOUSE_WORKER_HOST_JOURNAL_H_

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "worker/host/chunk_pool.h"
#include "worker/host/job_view.h"

namespace roundhouse::worker {

// What one operation does to a chunk.
class ChunkWork {
 public:
  virtual ~ChunkWork() = default;
  // Writes the chunk's new state into `scratch` and nothing else.  Called by
  // several threads at once, `thread` naming the caller.
  virtual absl::Status Compute(int thread, uint32_t chunk,
                               std::byte* scratch) = 0;
  // Copies it where it belongs.  Idempotent.
  virtual void CopyIntoPlace(uint32_t chunk, const std::byte* scratch) = 0;
  // Nothing of the chunk changes: it is done without the other two.
  virtual bool Unchanged(uint32_t /*chunk*/) const { return false; }
};

// Brings every chunk of `unit` to done(`operation`).  A failure leaves the
// operation to be sent again.  DATA_LOSS: the journal names a scratch slot that
// the job does not have.
absl::Status RunJournalled(const JobView& job, uint32_t unit,
                           uint64_t operation, ChunkWork& work, ChunkPool& pool,
                           const std::function<void()>& beat);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_HOST_JOURNAL_H_
