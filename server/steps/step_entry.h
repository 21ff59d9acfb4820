// What a job has under way: steps, and what of them is with workers.  Plain
// values.
#ifndef ROUNDHOUSE_SERVER_STEPS_STEP_ENTRY_H_
#define ROUNDHOUSE_SERVER_STEPS_STEP_ENTRY_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/wire/messages.h"
#include "scheduler/dispatch/actions.h"
#include "server/steps/commands.h"
#include "server/steps/expert_counts.h"

namespace roundhouse {

struct OutSlot {
  DeviceId device{};
  uint64_t attempt = 0;
  RunSlotAction action;
  int64_t enabled_ns = 0;  // the event that made it possible
  bool lost = false;       // its worker died; it will be sent again
};

struct OutHostOp {
  RunHostOpAction action;
  uint64_t attempt = 0;
};

struct StepEntry {
  StepData data;
  // Results of fused and evaluation slots: round, micro-batch -> result.
  std::map<std::pair<int, uint32_t>, wire::MicroBatchResult> results;
  ExpertCounts experts;            // of its committed slots
  std::vector<double> unit_norms;  // squared
  std::vector<int64_t> unit_ns;    // spent on reductions and update
  int64_t begun_ns = 0;
  bool save_after = false;
};

struct LossSum {
  double mean = 0;  // nats per target token
  bool finite = true;
};

// The loss over all micro-batches of the step.
LossSum SumLoss(const StepEntry& entry);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_STEPS_STEP_ENTRY_H_
