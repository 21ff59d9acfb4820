#include "server/weights/unit_layout.h"

#include <algorithm>

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

void WriteJobTables(const wire::Arena& arena, uint64_t offset,
                    const std::vector<wire::UnitLayout>& units,
                    const std::vector<wire::ParameterLayout>& parameters,
                    wire::JobLayout& job) {
  job.magic = wire::kLayoutMagic;
  job.version = wire::kWireVersion;
  job.unit_count = static_cast<uint32_t>(units.size());
  job.parameter_count = static_cast<uint32_t>(parameters.size());
  *arena.At<wire::JobLayout>(offset) = job;
  std::copy(units.begin(), units.end(),
            arena.At<wire::UnitLayout>(job.units_offset, units.size()));
  std::copy(parameters.begin(), parameters.end(),
            arena.At<wire::ParameterLayout>(job.parameters_offset,
                                            parameters.size()));
}

}  // namespace roundhouse
