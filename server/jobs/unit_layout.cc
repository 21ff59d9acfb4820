#include "server/jobs/unit_layout.h"

namespace roundhouse {

void AddParameterLayouts(const UnitSpec& unit, uint32_t index,
                         std::vector<wire::ParameterLayout>& parameters,
                         wire::UnitLayout& layout) {
  layout.first_parameter = static_cast<uint32_t>(parameters.size());
  layout.parameter_count = static_cast<uint32_t>(unit.parameters.size());
  layout.element_count = static_cast<uint64_t>(unit.element_count);
  for (const ParameterSpec& spec : unit.parameters) {
    const auto elements = static_cast<uint64_t>(spec.element_count);
    parameters.push_back({.unit = index,
                          .role = static_cast<uint32_t>(spec.role),
                          .unit_offset_elements =
                              static_cast<uint64_t>(spec.unit_offset_elements),
                          .element_count = elements,
                          .first_chunk = layout.chunk_count,
                          .weight_decay = spec.weight_decay ? 1u : 0u});
    layout.chunk_count += static_cast<uint32_t>(wire::ChunkCount(elements));
  }
}

}  // namespace roundhouse
