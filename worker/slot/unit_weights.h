// A unit's bytes on a device as weights of a layer.
#ifndef ROUNDHOUSE_WORKER_SLOT_UNIT_WEIGHTS_H_
#define ROUNDHOUSE_WORKER_SLOT_UNIT_WEIGHTS_H_

#include <cstddef>
#include <cstdint>

#include "worker/model/stage_run.h"
#include "worker/slot/job_tables.h"

namespace roundhouse::worker {

// Points the roles that `unit` has in `layer` into `data`, its compute weights.
void AddUnitWeights(const JobTables& tables, uint32_t unit, int64_t layer,
                    const std::byte* data, LayerWeights* weights);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_SLOT_UNIT_WEIGHTS_H_
