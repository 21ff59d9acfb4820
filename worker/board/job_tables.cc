#include "worker/board/job_tables.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/model/family.h"
#include "base/status.h"
#include "base/wire/model_dims.h"

namespace roundhouse::worker {
namespace {

template <typename T>
absl::StatusOr<std::vector<T>> ReadTable(const wire::Arena& arena,
                                         const char* name, uint64_t offset,
                                         uint64_t count) {
  if (offset % alignof(T) != 0 || offset > arena.size_bytes() ||
      count > (arena.size_bytes() - offset) / sizeof(T)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "layout: ", name, " at ", offset, ", ", count,
        " entries, lie outside the arena of ", arena.size_bytes(), " bytes"));
  }
  const T* const first = arena.At<T>(offset, count);
  return std::vector<T>(first, first + count);
}

absl::Status CheckLayout(const wire::JobLayout& layout) {
  if (layout.magic != wire::kLayoutMagic ||
      layout.version != wire::kWireVersion) {
    return absl::InvalidArgumentError(absl::StrCat(
        "layout: magic ", layout.magic, " version ", layout.version,
        ", expected ", wire::kLayoutMagic, " and ", wire::kWireVersion));
  }
  const DType dtype = layout.dtype;
  if (dtype != DType::kF32 && dtype != DType::kBF16 && dtype != DType::kF16) {
    return absl::InvalidArgumentError(absl::StrCat(
        "layout: dtype ", static_cast<uint32_t>(layout.dtype), " is unknown"));
  }
  if (layout.head_token_chunk == 0) {
    return absl::InvalidArgumentError("layout: head_token_chunk is 0");
  }
  return absl::OkStatus();
}

absl::Status CheckParameters(const JobTables& tables) {
  for (size_t p = 0; p < tables.parameters.size(); ++p) {
    const wire::ParameterLayout& parameter = tables.parameters[p];
    if (parameter.unit >= tables.units.size() ||
        parameter.role >= static_cast<uint32_t>(kParamRoleCount)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "layout: parameter ", p, " has unit ", parameter.unit, " of ",
          tables.units.size(), " and role ", parameter.role));
    }
    const uint64_t elements = tables.units[parameter.unit].element_count;
    if (parameter.unit_offset_elements > elements ||
        parameter.element_count > elements - parameter.unit_offset_elements ||
        parameter.unit_offset_elements % kTensorAlignElements != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "layout: parameter ", p, " at element ",
          parameter.unit_offset_elements, " of ", parameter.element_count,
          " elements does not fit its unit of ", elements));
    }
  }
  return absl::OkStatus();
}

// What else the computation takes from the layout and could not make sense of.
absl::Status CheckModel(const wire::ModelDims& model,
                        const AdapterConfig& adapter) {
  if (!IsArchitecture(model.architecture)) {
    return absl::InvalidArgumentError(
        absl::StrCat("layout: architecture ", model.architecture));
  }
  if (model.rope_type > static_cast<uint32_t>(RopeType::kLlama3)) {
    return absl::InvalidArgumentError(
        absl::StrCat("layout: rope type ", model.rope_type));
  }
  const absl::Status status = CheckAdapter(adapter);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(
      absl::StrCat("layout: ", std::string(status.message())));
}

// Adapters stand behind the model's units and are fp32.
absl::Status CheckUnitDType(const JobTables& tables, size_t u) {
  const DType expected =
      UnitDType(tables.config, tables.dtype, static_cast<int64_t>(u));
  if (tables.units[u].dtype == expected) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "layout: unit ", u, " has dtype ",
      static_cast<uint32_t>(tables.units[u].dtype), ", expected ",
      static_cast<uint32_t>(expected), " (", DTypeName(expected), ")"));
}

absl::Status CheckUnits(const JobTables& tables) {
  const int64_t layers = tables.config.layer_count;
  const auto expected =
      static_cast<size_t>(layers + 2 + (tables.adapter.present() ? layers : 0));
  if (layers < 1 || tables.units.size() != expected) {
    return absl::InvalidArgumentError(absl::StrCat(
        "layout: ", tables.units.size(), " units for ", layers,
        tables.adapter.present() ? " layers with adapters" : " layers"));
  }
  for (size_t u = 0; u < tables.units.size(); ++u) {
    const wire::UnitLayout& unit = tables.units[u];
    if (unit.first_parameter > tables.parameters.size() ||
        unit.parameter_count >
            tables.parameters.size() - unit.first_parameter) {
      return absl::InvalidArgumentError(absl::StrCat(
          "layout: unit ", u, " has parameters ", unit.first_parameter, "+",
          unit.parameter_count, " of ", tables.parameters.size()));
    }
    RETURN_IF_ERROR(CheckUnitDType(tables, u));
  }
  return absl::OkStatus();
}

}  // namespace

ParamRole RoleInLayer(const JobTables& tables,
                      const wire::ParameterLayout& parameter, int64_t layer) {
  const auto role = static_cast<ParamRole>(parameter.role);
  const bool in_head = layer == tables.head_layer();
  return in_head && role == ParamRole::kEmbedding ? ParamRole::kLmHead : role;
}

absl::Status CheckLayerUnits(
    const JobTables& tables, const std::vector<wire::SlotUnit>& units,
    int64_t first_layer,
    const std::vector<std::vector<uint32_t>>& layer_units) {
  for (size_t i = 0; i < layer_units.size(); ++i) {
    const int64_t layer = first_layer + static_cast<int64_t>(i);
    std::vector<int> given;
    for (uint32_t u : layer_units[i]) {
      given.push_back(static_cast<int>(units[u].unit));
    }
    std::vector<int> needed =
        TrainingUnitsOfLayer(tables.config, tables.adapter, layer);
    std::sort(given.begin(), given.end());
    std::sort(needed.begin(), needed.end());
    if (given != needed) {
      return absl::InvalidArgumentError(
          absl::StrCat("units lists ", given.size(), " units for layer ", layer,
                       ", not the ", needed.size(), " it reads"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const JobTables>> ReadJobTables(
    const wire::Arena& arena, uint64_t layout_offset) {
  ASSIGN_OR_RETURN(const std::vector<wire::JobLayout> layouts,
                   ReadTable<wire::JobLayout>(arena, "job", layout_offset, 1));
  const wire::JobLayout& layout = layouts.front();
  RETURN_IF_ERROR(CheckLayout(layout));
  RETURN_IF_ERROR(CheckModel(layout.model, wire::ConfigOf(layout.adapter)));
  auto tables = std::make_shared<JobTables>();
  tables->job = layout.job;
  tables->config = wire::ConfigOf(layout.model, layout.dtype);
  tables->adapter = wire::ConfigOf(layout.adapter);
  tables->seed = layout.seed;
  tables->dtype = layout.dtype;
  tables->head_token_chunk = layout.head_token_chunk;
  ASSIGN_OR_RETURN(tables->units,
                   ReadTable<wire::UnitLayout>(
                       arena, "units", layout.units_offset, layout.unit_count));
  ASSIGN_OR_RETURN(tables->parameters,
                   ReadTable<wire::ParameterLayout>(arena, "parameters",
                                                    layout.parameters_offset,
                                                    layout.parameter_count));
  RETURN_IF_ERROR(CheckUnits(*tables));
  RETURN_IF_ERROR(CheckParameters(*tables));
  return std::shared_ptr<const JobTables>(std::move(tables));
}

}  // namespace roundhouse::worker
