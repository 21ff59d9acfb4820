#include "worker/slot/gradient_sums.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"

namespace roundhouse::worker {
namespace {

float* Floats(const DeviceBuffer& buffer) {
  return reinterpret_cast<float*>(buffer.data());
}

}  // namespace

GradientSums::GradientSums(const wire::RunSlot& slot, const SlotPlan& plan,
                           const JobTables& tables, Stream& stream,
                           SumStore& store)
    : slot_(slot),
      plan_(plan),
      tables_(tables),
      stream_(stream),
      store_(store),
      units_(slot.units.size()) {}

void GradientSums::OnGradient(int64_t layer, ParamRole role, const float* fp32,
                              int64_t element_count) {
  if (status_.ok()) status_ = Add(layer, role, fp32, element_count);
}

absl::Status GradientSums::Add(int64_t layer, ParamRole role, const float* fp32,
                               int64_t element_count) {
  const auto& layer_units =
      plan_.layer_units[static_cast<size_t>(layer - slot_.first_layer)];
  for (uint32_t u : layer_units) {
    const wire::UnitLayout& unit = tables_.units[slot_.units[u].unit];
    for (uint32_t p = 0; p < unit.parameter_count; ++p) {
      const auto& parameter = tables_.parameters[unit.first_parameter + p];
      if (RoleInLayer(tables_, parameter, layer) != role) continue;
      if (parameter.element_count != static_cast<uint64_t>(element_count)) {
        return absl::InternalError(
            absl::StrCat("layer ", layer, " role ", static_cast<uint32_t>(role),
                         ": ", element_count, " gradients for ",
                         parameter.element_count, " elements"));
      }
      UnitSums& sums = units_[u];
      ++sums.gradients;
      if (plan_.units[u].contributions.empty()) return absl::OkStatus();
      if (sums.group == nullptr) {
        ASSIGN_OR_RETURN(sums.group, store_.TakeSum(u));
      }
      float* const to = Floats(*sums.group) + parameter.unit_offset_elements;
      if (!plan_.micro_batches[micro_batch_].first_of_group) {
        return stream_.AddFloats(to, fp32, element_count);
      }
      return stream_.CopyOnDevice(reinterpret_cast<std::byte*>(to),
                                  reinterpret_cast<const std::byte*>(fp32),
                                  parameter.element_count * sizeof(float));
    }
  }
  return absl::InternalError(absl::StrCat("layer ", layer,
                                          " has no parameter of role ",
                                          static_cast<uint32_t>(role)));
}

absl::Status GradientSums::FinishLayer(int64_t layer) {
  RETURN_IF_ERROR(std::exchange(status_, absl::OkStatus()));
  for (uint32_t u :
       plan_.layer_units[static_cast<size_t>(layer - slot_.first_layer)]) {
    RETURN_IF_ERROR(FinishUnit(u));
  }
  return absl::OkStatus();
}

absl::Status GradientSums::FinishUnit(size_t unit) {
  const uint32_t number = slot_.units[unit].unit;
  const uint32_t expected =
      tables_.trainable(number) ? tables_.units[number].parameter_count : 0;
  const uint32_t found = std::exchange(units_[unit].gradients, 0);
  if (found != expected) {
    return absl::InternalError(absl::StrCat("unit ", number, ": ", found,
                                            " gradients for ", expected,
                                            " trainable parameters"));
  }
  if (plan_.units[unit].contributions.empty() ||
      !plan_.micro_batches[micro_batch_].last_of_group) {
    return absl::OkStatus();
  }
  return FoldGroup(unit);
}

absl::Status GradientSums::FoldGroup(size_t unit) {
  UnitSums& sums = units_[unit];
  const uint32_t contribution = plan_.units[unit].contributions[sums.next];
  sums.nodes.push_back(std::exchange(sums.group, nullptr));
  const int value = static_cast<int>(sums.nodes.size()) - 1;
  RETURN_IF_ERROR(Apply(unit, sums.fold.Push(value)));
  if (++sums.groups_folded < slot_.contributions[contribution].group_count) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(Apply(unit, sums.fold.Finish()));
  DeviceBuffer* const sum = sums.nodes[static_cast<size_t>(sums.fold.root())];
  sums.nodes.clear();
  sums.fold = TreeFold();
  sums.groups_folded = 0;
  ++sums.next;
  return store_.SendSum(unit, contribution, sum);
}

absl::Status GradientSums::Apply(size_t unit,
                                 const std::vector<TreeAdd>& additions) {
  UnitSums& sums = units_[unit];
  const auto elements =
      static_cast<int64_t>(tables_.units[slot_.units[unit].unit].element_count);
  for (const TreeAdd& add : additions) {
    DeviceBuffer* const from = sums.nodes[static_cast<size_t>(add.from)];
    DeviceBuffer* const into = sums.nodes[static_cast<size_t>(add.into)];
    RETURN_IF_ERROR(stream_.AddFloats(Floats(*into), Floats(*from), elements));
    store_.GiveSum(unit, from);
  }
  return absl::OkStatus();
}

}  // namespace roundhouse::worker
