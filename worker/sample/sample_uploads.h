// A sample's copies to the device, by way of the worker's upload queue.
//
// Thread rule: the compute thread; the queue's thread reports through the
// board.
#ifndef ROUNDHOUSE_WORKER_SAMPLE_SAMPLE_UPLOADS_H_
#define ROUNDHOUSE_WORKER_SAMPLE_SAMPLE_UPLOADS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/wire/arena.h"
#include "worker/board/sample_state.h"
#include "worker/board/slot_board.h"
#include "worker/device/device.h"
#include "worker/model/stage_run.h"
#include "worker/transfer/copy_queue.h"

namespace roundhouse::worker {

class SampleUploads {
 public:
  // All outlive it.
  SampleUploads(SlotBoard& board, CopyQueue& queue, Device& device,
                const wire::Arena& arena, SampleState& sample)
      : board_(board),
        queue_(queue),
        device_(device),
        arena_(arena),
        sample_(sample) {}
  ~SampleUploads();  // waits until no copy is in flight
  SampleUploads(const SampleUploads&) = delete;
  SampleUploads& operator=(const SampleUploads&) = delete;

  // Copies `bytes` of host memory and waits for them.  CANCELLED: the board
  // stops.
  absl::Status CopyRows(const std::byte* from, uint64_t bytes,
                        DeviceBuffer& to);

  // Begins the upload of a layer's weights, unless it has begun.
  absl::Status StartLayer(size_t layer);
  // Waits for it.  The weights stay until ReleaseLayer.  CANCELLED: the board
  // stops.  REQUIRES: begun.
  absl::StatusOr<LayerWeights> AwaitLayer(size_t layer);
  // REQUIRES: no work uses the weights any more.
  void ReleaseLayer(size_t layer) { layers_.erase(layer); }

 private:
  struct Unit {
    std::unique_ptr<DeviceBuffer> buffer;
    std::atomic<bool> there{false};
  };
  using Units = std::vector<Unit>;  // as SamplePlan::layer_units

  // `there` becomes true when the copy is made, and stays until then.
  absl::Status Start(std::atomic<bool>& there, DeviceBuffer& to,
                     const std::byte* from, uint64_t bytes,
                     CopyPriority priority, wire::Purpose purpose);

  SlotBoard& board_;
  CopyQueue& queue_;
  Device& device_;
  const wire::Arena& arena_;
  SampleState& sample_;
  std::map<size_t, Units> layers_;
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_SAMPLE_SAMPLE_UPLOADS_H_
