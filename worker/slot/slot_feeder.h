// The host thread that waits on words for its worker: it starts an upload when
// the word of its bytes is reached, raises a word when a download is complete
// and its slot is not withdrawn, and ends slots.
//
// It alone raises words and sends SlotDone, Withdrawn and Failed, so that after
// the answer to a withdrawal nothing of that attempt is raised or written.
#ifndef ROUNDHOUSE_WORKER_SLOT_SLOT_FEEDER_H_
#define ROUNDHOUSE_WORKER_SLOT_SLOT_FEEDER_H_

#include "base/wire/arena.h"
#include "worker/board/held_sums.h"
#include "worker/board/slot_board.h"
#include "worker/board/upload_feed.h"
#include "worker/device/device.h"
#include "worker/outbox.h"
#include "worker/transfer/copy_queue.h"

namespace roundhouse::worker {

// What the feeder works with; all outlive it.
struct FeederContext {
  SlotBoard& board;
  CopyQueue& uploads;
  HeldSums& held;
  Device& device;
  wire::Arena& arena;
  wire::Doorbell& doorbell;  // the worker's
  Outbox& outbox;
  Pulse& pulse;
};

class SlotFeeder {
 public:
  explicit SlotFeeder(const FeederContext& context)
      : board_(context.board),
        uploads_(context.uploads),
        held_(context.held),
        device_(context.device),
        arena_(context.arena),
        doorbell_(context.doorbell),
        outbox_(context.outbox),
        pulse_(context.pulse),
        feed_(arena_, doorbell_) {}

  // Until the board stops.
  void Run();

 private:
  // One look at everything; true when another is due at once.
  bool Step();
  void EnqueueUploads();
  void RaiseWords();
  void TellSums();
  void EndSlots();
  void EndSlot(const SlotState& slot);
  bool SomethingToDo() const;

  SlotBoard& board_;
  CopyQueue& uploads_;
  HeldSums& held_;
  Device& device_;
  wire::Arena& arena_;
  wire::Doorbell& doorbell_;
  Outbox& outbox_;
  Pulse& pulse_;

  const UploadFeed feed_;
  FeedStep step_;
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_SLOT_SLOT_FEEDER_H_
