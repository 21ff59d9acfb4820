// How much later the next step's uploads start because of this step's updates,
// from the simulation of one round.
//
// Pure functions; thread-safe.
#ifndef ROUNDHOUSE_SCHEDULER_ESTIMATE_UPDATE_DELAY_H_
#define ROUNDHOUSE_SCHEDULER_ESTIMATE_UPDATE_DELAY_H_

#include <cstdint>

#include "scheduler/estimate/training_costs.h"
#include "scheduler/plan/plan.h"
#include "scheduler/simulate/schedule.h"

namespace roundhouse {

// Host traffic of AdamW: gradient 4, master and moments 12 read and 12 written,
// compute copy 2.
inline constexpr int64_t kUpdateBytes = 30;

// How much later than at the round's end the next step starts so that none of
// its uploads waits for an update: of a round that shows reductions and no
// updates (Updates::kNone).  `stages`: of its plan; `host_rate` in GB/s.
int64_t UpdateDelayNs(const Schedule& round, const Plan& stages,
                      const TrainingSetup& setup, double host_rate);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_ESTIMATE_UPDATE_DELAY_H_
