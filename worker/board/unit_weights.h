// A unit's bytes on a device as weights of a layer.
#ifndef ROUNDHOUSE_WORKER_BOARD_UNIT_WEIGHTS_H_
#define ROUNDHOUSE_WORKER_BOARD_UNIT_WEIGHTS_H_

#include <cstddef>
#include <cstdint>

#include "worker/board/job_tables.h"
#include "worker/model/stage_run.h"

namespace roundhouse::worker {

// Points the roles that `unit` has in `layer` into `data`, its compute weights.
void AddUnitWeights(const JobTables& tables, uint32_t unit, int64_t layer,
                    const std::byte* data, LayerWeights* weights);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_BOARD_UNIT_WEIGHTS_H_
