// Queues a copy of a slot's buffer to the arena.
#ifndef ROUNDHOUSE_WORKER_SLOT_DOWNLOAD_H_
#define ROUNDHOUSE_WORKER_SLOT_DOWNLOAD_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "base/wire/arena.h"
#include "worker/slot/slot_board.h"
#include "worker/transfer/copy_queue.h"

namespace roundhouse::worker {

struct Download {
  // Of the slot; back among its free ones when the copy is made.
  BufferPool* pool = nullptr;
  DeviceBuffer* buffer = nullptr;
  wire::BufferRef to;
  CopyPriority priority = CopyPriority::kBulk;
  wire::Purpose purpose = wire::Purpose::kGradients;
  CopyPlace place;
  std::unique_ptr<Event> after;  // null: it can begin
  const char* kill_point = "";
  std::function<void()> copied;  // under the board's mutex
};

// The slot stays until the copy is made or given up; an error of the device
// fails it.  RESOURCE_EXHAUSTED: the queue is full.
absl::Status QueueDownload(SlotBoard& board, CopyQueue& downloads,
                           const wire::Arena& arena, SlotState& slot,
                           Download download);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_SLOT_DOWNLOAD_H_
