// How a step's tokens are spread over the experts of each layer, counted as
// slots are done: what their workers left in the arena (base/wire:
// SlotMicroBatch::loads) holds until the round's buffers are another's.
//
// Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_STEPS_EXPERT_COUNTS_H_
#define ROUNDHOUSE_SERVER_STEPS_EXPERT_COUNTS_H_

#include <cstdint>
#include <map>
#include <vector>

#include "base/model/expert_load.h"
#include "base/wire/arena.h"
#include "server/steps/commands.h"

namespace roundhouse {

class ExpertCounts {
 public:
  // Adds those of the layers that the slot picked experts for; nothing of
  // another slot.  REQUIRES: it has just been committed.
  void Add(const RunSlotAction& action, const StepData& step,
           const ModelConfig& model, const RoundBuffers& buffers,
           const wire::Arena& arena);

  // One for each layer where a token was counted, in order.
  std::vector<LayerLoad> Loads() const;

 private:
  std::map<int, std::vector<int64_t>> tokens_;  // layer -> of each expert
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_STEPS_EXPERT_COUNTS_H_
