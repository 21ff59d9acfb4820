// Who is told what the work of a job's steps took (server/run/plan_adviser.h).
//
// Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_STEPS_STEP_MEASURES_H_
#define ROUNDHOUSE_SERVER_STEPS_STEP_MEASURES_H_

#include <cstdint>

#include "base/dtype.h"
#include "base/wire/messages.h"
#include "scheduler/dispatch/actions.h"

namespace roundhouse {

class StepMeasures {
 public:
  virtual ~StepMeasures() = default;
  // A slot was done on a device of this speed.
  virtual void ObserveSlot(SlotKind kind, double speed,
                           const wire::SlotDone& done) = 0;
  // A host operation over so many elements took `ns`; its contributions have
  // this dtype.
  virtual void ObserveHostOp(const RunHostOpAction& action, int64_t elements,
                             DType contributions, int64_t ns) = 0;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_STEPS_STEP_MEASURES_H_
