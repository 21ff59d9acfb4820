#include "worker/board/unit_weights.h"

namespace roundhouse::worker {

void AddUnitWeights(const JobTables& tables, uint32_t unit, int64_t layer,
                    const std::byte* data, LayerWeights* weights) {
  const wire::UnitLayout& layout = tables.units[unit];
  for (uint32_t p = 0; p < layout.parameter_count; ++p) {
    const auto& parameter = tables.parameters[layout.first_parameter + p];
    const auto role =
        static_cast<size_t>(RoleInLayer(tables, parameter, layer));
    weights->weight[role] =
        data + parameter.unit_offset_elements * tables.element_bytes(unit);
  }
}

}  // namespace roundhouse::worker
