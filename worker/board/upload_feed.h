// What the feeder finds to do when it looks at the slots: uploads whose bytes
// are published and whose memory is there, words to raise, sums to tell of,
// slots that have ended.
//
// Pure but for the slots' state: the board calls Look with the table that it
// guards, and the feeder does what the step says without the board's mutex.
#ifndef ROUNDHOUSE_WORKER_BOARD_UPLOAD_FEED_H_
#define ROUNDHOUSE_WORKER_BOARD_UPLOAD_FEED_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "base/wire/arena.h"
#include "base/wire/messages.h"
#include "worker/board/slot_state.h"
#include "worker/board/slot_table.h"
#include "worker/device/device.h"
#include "worker/transfer/copy_queue.h"

namespace roundhouse::worker {

// Names an upload of a slot.
struct UploadName {
  enum class Kind { kInput, kGradient, kWeights };
  Kind kind = Kind::kInput;
  size_t index = 0;  // of the micro-batch, or in RunSlot::units
};

Upload& UploadOf(SlotState& slot, const UploadName& name);

// The slot stays until the upload has ended.
struct BegunUpload {
  Slot* slot = nullptr;
  UploadName name;
  DeviceBuffer* to = nullptr;
  wire::BufferRef from;
  CopyPriority priority = CopyPriority::kActivation;
  wire::Purpose purpose = wire::Purpose::kActivations;
  CopyPlace place;
};

// One look's findings; the feeder's.
struct FeedStep {
  struct Raise {
    Slot* slot = nullptr;  // stays until the output is settled
    size_t output = 0;
  };
  struct Sums {
    uint64_t attempt = 0;
    wire::SumsDown sums;
  };
  std::vector<BegunUpload> uploads;
  std::vector<Raise> raises;
  std::vector<Sums> sums;
  std::vector<std::unique_ptr<SlotState>> ended;
  bool gave_up = false;  // a slot was marked
  bool refused = false;  // SlotTable::AnyRefusedLately
  // What the next step waits for.
  std::vector<wire::WordRef> awaited;
  std::vector<uint64_t> attempts;
};

class UploadFeed {
 public:
  // Both outlive it; `doorbell` is this worker's own.
  UploadFeed(const wire::Arena& arena, const wire::Doorbell& doorbell)
      : arena_(arena), doorbell_(doorbell) {}

  // Adds to the step.
  void Look(SlotTable& table, FeedStep& step) const;

 private:
  class Pass;

  const wire::Arena& arena_;
  const wire::Doorbell& doorbell_;
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_BOARD_UPLOAD_FEED_H_
