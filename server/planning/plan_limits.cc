#include "server/planning/plan_limits.h"

#include <algorithm>
#include <bit>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/byte_text.h"
#include "base/log.h"
#include "scheduler/plan/step_plan.h"

namespace roundhouse {
namespace {

// As devices allocate, at most.
uint64_t Align(uint64_t bytes) { return (bytes + 511) / 512 * 512; }

// Per layer the parts of one slot; equal for slots that are split alike.
class SumsOfASlot {
 public:
  SumsOfASlot(const Plan& plan, int64_t groups)
      : plan_(plan), groups_(groups) {}

  // Sums that one part sends per unit.
  int64_t Sent(int slot) { return Of(slot).sent; }
  // One for each size of subtree up to the largest that it folds.
  int64_t Folded(int slot) { return Of(slot).folded; }

 private:
  struct Sums {
    int64_t sent = 1;
    int64_t folded = 1;
  };

  const Sums& Of(int slot) {
    const std::vector<int> split =
        plan_.split.empty() ? std::vector<int>() : plan_.split[slot];
    const auto [found, added] = known_.try_emplace(split);
    if (added) {
      const int64_t most = split.empty()
                               ? groups_
                               : *std::max_element(split.begin(), split.end());
      found->second.sent = MostContributionsOfAPart(plan_, slot);
      found->second.folded =
          static_cast<int64_t>(std::bit_width(static_cast<uint64_t>(most)));
    }
    return found->second;
  }

  const Plan& plan_;
  const int64_t groups_;
  std::map<std::vector<int>, Sums> known_;
};

// As a job file's plan names it, and its layers.
std::string NameOf(const PlanSlot& slot) {
  const bool forward = slot.kind == SlotKind::kForward;
  return absl::StrCat(slot.again ? "forward again before backward["
                      : forward  ? "forward["
                                 : "backward[",
                      slot.stage, "] of layers ", slot.layers.first, " to ",
                      slot.layers.last);
}

// The fused stage keeps its upper half; the lower one is a stage of each pass.
void CutInHalf(Plan& plan, const PlanSlot& slot) {
  const LayerRange& stage = slot.layers;
  const int middle = stage.first + (stage.last - stage.first) / 2;
  const LayerRange lower = {stage.first, middle};
  const LayerRange upper = {middle + 1, stage.last};
  const auto at = static_cast<long>(slot.stage);
  if (slot.kind == SlotKind::kForward) {
    plan.forward[at] = upper;
    plan.forward.insert(plan.forward.begin() + at, lower);
    return;
  }
  plan.backward[at] = lower;
  plan.backward.insert(plan.backward.begin() + at, upper);
  if (at == 0) plan.forward.push_back(lower);
}

// What is cut where the slot is too large; nullptr: it can't be less.  What
// runs again is as long as the longest forward stage.
const PlanSlot* ToCut(const std::vector<PlanSlot>& slots,
                      const PlanSlot& too_large) {
  const PlanSlot* cut = &too_large;
  if (too_large.again) {
    cut = &*std::max_element(
        slots.begin(), slots.end(), [](const PlanSlot& a, const PlanSlot& b) {
          const auto layers = [](const PlanSlot& slot) {
            const bool stage = slot.kind == SlotKind::kForward && !slot.again;
            return stage ? slot.layers.layer_count() : 0;
          };
          return layers(a) < layers(b);
        });
  }
  return cut->layers.layer_count() > 1 ? cut : nullptr;
}

}  // namespace

PlanLimits::PlanLimits(const PlanLimitsOptions& options) : options_(options) {
  const ModelConfig& config = options.model.config;
  const auto units = TrainingUnits(config, options.model.adapter);
  for (int64_t i = 0; i <= config.layer_count; ++i) {
    Layer& layer = layers_.emplace_back();
    for (int unit : TrainingUnitsOfLayer(config, options.model.adapter, i)) {
      const auto elements = static_cast<uint64_t>(units[unit].element_count);
      const bool adapters = unit > config.layer_count + 1;
      layer.weight_bytes += Align(
          elements * DTypeBytes(adapters ? DType::kF32 : options.model.dtype));
      ++layer.units;
      if (!IsTrainable(config, options.model.adapter, unit)) continue;
      layer.sum_bytes += Align(elements * DTypeBytes(DType::kF32));
      layer.rounded_bytes +=
          Align(elements * DTypeBytes(options.buffers.contributions.dtype));
      ++layer.trained_units;
    }
  }
}

uint64_t PlanLimits::WorkingOf(const LayerRange& stage,
                               PassDirection direction) const {
  if (!options_.device.with_libraries) return 0;
  WorkingShape shape = options_.working;
  shape.backward = direction == PassDirection::kBackward;
  return WorkingBytes(options_.model.config, options_.model.adapter, shape,
                      stage.first, stage.last);
}

// As worker/board/slot_plan.h: of several sums one goes down while the next one
// is folded, or all are held.  Those of adapters never are.
PlanLimits::HeldSums PlanLimits::Held(int64_t sent, int64_t folded) const {
  const bool all =
      options_.device.holds_sums && !options_.model.adapter.present();
  const auto down =
      static_cast<uint64_t>(all ? sent : std::min<int64_t>(sent, 2));
  const auto sums = static_cast<uint64_t>(folded);
  if (options_.buffers.contributions.dtype == DType::kF32) {
    return {sums + down - 1, 0};
  }
  return {sums, down};
}

uint64_t PlanLimits::StageBytes(const LayerRange& stage, const HeldSums& held,
                                PassDirection direction) const {
  uint64_t bytes = WorkingOf(stage, direction);
  for (int layer = stage.first; layer <= stage.last; ++layer) {
    bytes += layers_[layer].weight_bytes +
             held.sums * layers_[layer].sum_bytes +
             held.rounded * layers_[layer].rounded_bytes;
  }
  return bytes;
}

uint64_t PlanLimits::LargestSlotBytes(const Plan& plan) const {
  const std::vector<uint64_t> slots = SlotBytes(plan);
  return *std::max_element(slots.begin(), slots.end());
}

std::vector<uint64_t> PlanLimits::SlotBytes(const Plan& plan) const {
  const RoundBuffersOptions& buffers = options_.buffers;
  const auto tokens = static_cast<uint64_t>(buffers.rows) * buffers.row_tokens;
  const uint64_t tensor =
      Align(tokens * buffers.hidden_size * DTypeBytes(buffers.dtype));
  const uint64_t inputs = 2 * tensor;
  std::vector<uint64_t> slots;
  const std::vector<uint64_t> outputs = OutputsOfSlots(plan);
  SumsOfASlot sums(plan, options_.groups);
  int index = -1;
  for (const PlanSlot& slot : SlotsOf(plan)) {
    ++index;
    if (slot.kind == SlotKind::kForward) {
      slots.push_back(StageBytes(slot.layers, {}, PassDirection::kForward) +
                      inputs + 2 * outputs[index] * tensor);
      continue;
    }
    // All but the fused slot have a gradient from above.
    const uint64_t given = slot.kind == SlotKind::kFused ? 0 : 2 * tensor;
    const HeldSums held = Held(sums.Sent(index), sums.Folded(index));
    slots.push_back(StageBytes(slot.layers, held, PassDirection::kBackward) +
                    inputs + given + 2 * tensor);
  }
  return slots;
}

Plan PlanLimits::CutToFit(Plan plan) const {
  ROUNDHOUSE_CHECK(plan.fused && plan.split.empty());
  while (true) {
    const std::vector<PlanSlot> slots = SlotsOf(plan);
    const std::vector<uint64_t> bytes = SlotBytes(plan);
    const PlanSlot* cut = nullptr;
    for (size_t slot = 0; slot < slots.size() && cut == nullptr; ++slot) {
      if (bytes[slot] > options_.device.bytes) cut = ToCut(slots, slots[slot]);
    }
    if (cut == nullptr) return plan;
    CutInHalf(plan, *cut);
  }
}

uint64_t PlanLimits::UnitBytes(const LayerRange& stage, uint64_t sums) const {
  uint64_t bytes = 0;
  for (int layer = stage.first; layer <= stage.last; ++layer) {
    bytes +=
        layers_[layer].units * sizeof(wire::SlotUnit) +
        layers_[layer].trained_units * sums * sizeof(wire::SlotContribution);
  }
  return bytes;
}

absl::Status PlanLimits::CheckSlots(const Plan& plan) const {
  const std::vector<uint64_t> bytes = SlotBytes(plan);
  const auto most = std::max_element(bytes.begin(), bytes.end());
  const DeviceRoom& device = options_.device;
  const std::vector<PlanSlot> slots = SlotsOf(plan);
  if (*most > device.bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a slot of the plan, ", NameOf(slots[most - bytes.begin()]), ", needs ",
        ByteText(*most), " of its device",
        device.with_libraries ? "" : " beside inner activations",
        ", a device has ", ByteText(device.bytes)));
  }
  SumsOfASlot sums(plan, options_.groups);
  int index = -1;
  for (const PlanSlot& slot : slots) {
    ++index;
    if (slot.kind == SlotKind::kForward) continue;
    const uint64_t unit_bytes =
        UnitBytes(slot.layers, static_cast<uint64_t>(sums.Sent(index)));
    if (unit_bytes <= kMaxSlotUnitBytes) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("backward[", slot.stage,
                     "] has more sums of gradients to send than a command ",
                     "can name (", unit_bytes, " bytes of ", kMaxSlotUnitBytes,
                     "); cut the stage, or its shares, anew"));
  }
  return absl::OkStatus();
}

}  // namespace roundhouse
