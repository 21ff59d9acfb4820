#include "worker/board/download.h"

#include <utility>

#include "base/kill_point.h"

namespace roundhouse::worker {
namespace {

const char* CopiedPoint(CopiedPart::Kind kind) {
  return kind == CopiedPart::Kind::kOutput ? "slot.output.copied"
                                           : "slot.contribution.copied";
}

}  // namespace

absl::Status QueueDownload(SlotBoard& board, CopyQueue& downloads,
                           const wire::Arena& arena, Slot& slot,
                           Download download) {
  CopyRequest request;
  request.priority =
      slot.backfill() ? CopyPriority::kBackfill : download.priority;
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
                  part = download.part](absl::Status status) {
    if (status.ok()) KillPoint(CopiedPoint(part.kind));
    board.EndDownload(slot, pool, buffer, part, std::move(status));
  };
  board.BeginCopy(slot);
  absl::Status queued = downloads.Enqueue(std::move(request));
  if (!queued.ok()) board.TakeBackCopy(slot);
  return queued;
}

}  // namespace roundhouse::worker
