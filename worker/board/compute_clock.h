// When a slot's computation was where, by the device's own clock: the time of
// each layer, and how long the device stood still while the compute thread
// waited.
//
// The thread may be ahead of a GPU, so a wait of the thread is a wait of the
// device only from when the work queued before it was done.  Marks are
// recorded as work is queued, and looked at when a micro-batch is over.
//
// Thread-compatible: the compute thread's.
#ifndef ROUNDHOUSE_WORKER_BOARD_COMPUTE_CLOCK_H_
#define ROUNDHOUSE_WORKER_BOARD_COMPUTE_CLOCK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/wire/messages.h"
#include "base/work_kinds.h"
#include "worker/board/wait_split.h"
#include "worker/device/device.h"

namespace roundhouse::worker {

class ComputeClock {
 public:
  using Mark = std::unique_ptr<TimeMark>;

  // `stream` outlives it.
  ComputeClock(Stream& stream, uint32_t first_layer, size_t layer_count)
      : stream_(stream), first_layer_(first_layer), layers_(layer_count) {}

  // REQUIRES: all work of the stream is done.
  absl::Status BeginMicroBatch();

  // A mark after the work queued so far.
  absl::StatusOr<Mark> Now() { return stream_.MarkTime(); }

  // What was queued since `began` is a pass of the layer.
  absl::Status EndLayer(uint32_t layer, PassDirection direction, Mark began);

  // The thread waited in [began_ns, ended_ns), CLOCK_MONOTONIC; `queued` was
  // taken just before.  The milestones as SplitWait has them; none: the wait
  // was no bubble, and has no cause.
  void NoteWait(Mark queued, int64_t began_ns, int64_t ended_ns,
                std::vector<Milestone> milestones);

  // Waits for all work of the micro-batch, then adds the device's waits to
  // `waits` and, where the micro-batch `counts`, the layers' times.  Returns
  // the sum of the waits.
  absl::StatusOr<int64_t> EndMicroBatch(bool counts, wire::WaitTimes& waits);

  // Mean times over `samples` micro-batches that counted.
  std::vector<wire::LayerTime> LayerTimes(uint32_t samples) const;

 private:
  struct LayerNs {
    int64_t passes_ns[2] = {};
  };
  struct PendingLayer {
    uint32_t layer;
    PassDirection direction;
    Mark began;
    Mark ended;
  };
  struct PendingWait {
    Mark queued;
    int64_t began_ns;
    int64_t ended_ns;
    std::vector<Milestone> milestones;
  };

  Stream& stream_;
  const uint32_t first_layer_;
  std::vector<LayerNs> layers_;  // by layer - first_layer_
  // The micro-batch's beginning.
  Mark begin_;
  int64_t begin_ns_ = 0;  // CLOCK_MONOTONIC
  std::vector<PendingLayer> pending_layers_;
  std::vector<PendingWait> pending_waits_;
};

// Blocks until all work of the stream is done.  ABORTED: the device is lost.
absl::Status Drain(Stream& stream);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_BOARD_COMPUTE_CLOCK_H_
