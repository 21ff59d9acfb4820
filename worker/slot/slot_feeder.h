// The host thread that waits on words for its worker: it starts an upload when
// the word of its bytes is reached, raises a word when a download is complete
// and its slot is not withdrawn, and ends slots.
//
// It alone raises words and sends SlotDone, Withdrawn and Failed, so that after
// the answer to a withdrawal nothing of that attempt is raised or written.
#ifndef ROUNDHOUSE_WORKER_SLOT_SLOT_FEEDER_H_
#define ROUNDHOUSE_WORKER_SLOT_SLOT_FEEDER_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/wire/arena.h"
#include "worker/device/device.h"
#include "worker/outbox.h"
#include "worker/slot/held_sums.h"
#include "worker/slot/slot_board.h"
#include "worker/transfer/copy_queue.h"

namespace roundhouse::worker {

class SlotFeeder {
 public:
  // All references outlive it.  `index` is the worker's doorbell.
  SlotFeeder(SlotBoard& board, CopyQueue& uploads, HeldSums& held,
             Device& device, wire::Arena& arena, int index, Outbox& outbox,
             Pulse& pulse)
      : board_(board),
        uploads_(uploads),
        held_(held),
        device_(device),
        arena_(arena),
        doorbell_(arena.doorbells().bell[index]),
        outbox_(outbox),
        pulse_(pulse) {}

  // Until the board stops.
  void Run();

 private:
  struct Copy {
    SlotState* slot;
    CopyRequest request;
  };
  struct PendingRaise {
    SlotState* slot;
    size_t output;
  };
  struct PendingSums {
    uint64_t attempt;
    wire::SumsDown sums;
  };

  // One look at everything; true when another is due at once.
  bool Step();
  // The following hold board_.mutex.
  void MarkWithdrawals();
  void FeedSlots();
  // Marks it published when every word that it waits for is reached.
  void LookAtWords(SlotState& slot);
  void FeedWeights(SlotState& slot);
  // What the m-th micro-batch needs goes up behind the first layer's weights
  // where it cannot be computed before them: activations go before weights.
  static bool MayUploadTurn(const SlotState& slot, size_t m);
  void FeedInputs(SlotState& slot);
  void FeedGradients(SlotState& slot);
  bool Awaited(const wire::WordRef& word);  // true: not reached yet
  // Whether it is reached; notes when that was, if it was awaited.
  bool Published(const wire::WordRef& word, Publication& noted);
  bool TakeBuffer(SlotState& slot, BufferPool& pool, DeviceBuffer** buffer);
  void StartUpload(SlotState& slot, Upload& upload, DeviceBuffer* buffer,
                   const wire::BufferRef& from, CopyPriority priority,
                   wire::Purpose purpose, CopyPlace place);
  void Fail(SlotState& slot, absl::Status why);
  void CollectRaises(SlotState& slot);
  void CollectSums(SlotState& slot);
  void CollectEnded();

  // Without it.
  void EnqueueCopies();
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

  // Filled by a step, emptied at its end.
  std::vector<Copy> copies_;
  std::vector<PendingRaise> raises_;
  std::vector<PendingSums> sums_;
  std::vector<std::unique_ptr<SlotState>> ended_;
  bool gave_up_ = false;  // a slot was marked
  bool refused_ = false;  // SlotBoard::AnyRefusedLately
  // What the next step waits for.
  std::vector<wire::WordRef> awaited_;
  std::vector<uint64_t> attempts_;
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_SLOT_SLOT_FEEDER_H_
