#include "worker/slot/download.h"

#include <utility>

#include "base/kill_point.h"

namespace roundhouse::worker {

absl::Status QueueDownload(SlotBoard& board, CopyQueue& downloads,
                           const wire::Arena& arena, SlotState& slot,
                           Download download) {
  CopyRequest request;
  request.priority = download.priority;
  request.purpose = download.purpose;
  request.to = arena.Bytes(download.to);
  request.from = download.buffer->data();
  request.bytes = download.to.bytes;
  request.after = std::move(download.after);
  request.stats = &slot.stats;
  request.place = download.place;
  request.abandoned = &slot.abandoned;
  // The computation may be over when the copy is: only the slot stays.
  request.done = [&board, &slot, pool = download.pool, buffer = download.buffer,
                  kill_point = download.kill_point,
                  copied = std::move(download.copied)](absl::Status status) {
    if (status.ok()) KillPoint(kill_point);
    board.Update([&] {
      --slot.copies_in_flight;
      pool->free.push_back(buffer);
      if (status.ok()) {
        copied();
      } else if (!slot.abandoned) {
        slot.Fail(std::move(status));
      }
    });
  };
  board.Update([&] { ++slot.copies_in_flight; });
  absl::Status queued = downloads.Enqueue(std::move(request));
  if (!queued.ok()) {
    board.Update([&] { --slot.copies_in_flight; });
  }
  return queued;
}

}  // namespace roundhouse::worker
