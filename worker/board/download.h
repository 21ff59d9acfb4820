// Queues a copy of a slot's buffer to the arena.
#ifndef ROUNDHOUSE_WORKER_BOARD_DOWNLOAD_H_
#define ROUNDHOUSE_WORKER_BOARD_DOWNLOAD_H_

#include <memory>

#include "absl/status/status.h"
#include "base/wire/arena.h"
#include "worker/board/slot_board.h"
#include "worker/transfer/copy_queue.h"

namespace roundhouse::worker {

struct Download {
  PoolName pool;  // has the buffer back when the copy has ended
  DeviceBuffer* buffer = nullptr;
  CopiedPart part;
  wire::BufferRef to;
  CopyPriority priority = CopyPriority::kBulk;  // kBackfill of such a slot
  wire::Purpose purpose = wire::Purpose::kGradients;
  CopyPlace place;
  std::unique_ptr<Event> after;  // null: it can begin
};

// The slot stays until the copy is made or given up; an error of the device
// fails it.  RESOURCE_EXHAUSTED: the queue is full.
absl::Status QueueDownload(SlotBoard& board, CopyQueue& downloads,
                           const wire::Arena& arena, Slot& slot,
                           Download download);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_BOARD_DOWNLOAD_H_
