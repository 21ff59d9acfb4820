// A job's model, units and parameters as the arena's layout table gives them,
// copied out and checked once per ConfigureJob.
//
// Immutable.  A slot holds it by shared_ptr: it may outlive its job's release.
#ifndef ROUNDHOUSE_WORKER_BOARD_JOB_TABLES_H_
#define ROUNDHOUSE_WORKER_BOARD_JOB_TABLES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/model/config.h"
#include "base/model/parameters.h"
#include "base/wire/arena.h"
#include "base/wire/commands.h"
#include "base/wire/layout.h"

namespace roundhouse::worker {

struct JobTables {
  uint64_t job = 0;
  ModelConfig config;
  AdapterConfig adapter;
  uint64_t seed = 0;
  DType dtype = DType::kF32;  // of the model's weights and of activations
  int64_t head_token_chunk = 0;
  std::vector<wire::UnitLayout> units;
  std::vector<wire::ParameterLayout> parameters;

  // The head's layer number.
  int64_t head_layer() const { return config.layer_count; }
  // REQUIRES: unit < units.size(), here and below.
  bool trainable(uint32_t unit) const {
    return IsTrainable(config, adapter, unit);
  }
  // The size of an element of the unit's compute weights.
  uint64_t element_bytes(uint32_t unit) const {
    return DTypeBytes(units[unit].dtype);
  }
};

// The role a parameter has in `layer`: a tied matrix is the LM head's there.
ParamRole RoleInLayer(const JobTables& tables,
                      const wire::ParameterLayout& parameter, int64_t layer);

// Whether the units that layer_units[i] indexes in `units` are those that layer
// first_layer + i reads.  INVALID_ARGUMENT with the layer.
absl::Status CheckLayerUnits(
    const JobTables& tables, const std::vector<wire::SlotUnit>& units,
    int64_t first_layer, const std::vector<std::vector<uint32_t>>& layer_units);

// INVALID_ARGUMENT naming the field: wrong magic or version, a table outside
// the arena, a parameter outside its unit, a unit of another dtype than the
// job's (adapters: fp32), adapter values without meaning.
absl::StatusOr<std::shared_ptr<const JobTables>> ReadJobTables(
    const wire::Arena& arena, uint64_t layout_offset);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_BOARD_JOB_TABLES_H_
