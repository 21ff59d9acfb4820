#include "scheduler/plan/plan.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status.h"

namespace roundhouse {
namespace {

std::string RangeText(const LayerRange& range) {
  return absl::StrCat("[", range.first, ",", range.last, "]");
}

std::string StageName(const char* direction, size_t index) {
  return absl::StrCat("plan.", direction, "[", index, "]");
}

absl::Status CheckRange(const std::string& name, const LayerRange& range,
                        int layer_count) {
  if (range.first < 0 || range.first > range.last ||
      range.last >= layer_count) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is ", RangeText(range),
                     ": a stage is [first,last] with 0 <= first <= last <= ",
                     layer_count - 1));
  }
  return absl::OkStatus();
}

// `stages` cover 0..end-1 in ascending order.
absl::Status CheckForward(const std::vector<LayerRange>& stages, int end,
                          int layer_count) {
  int next = 0;
  for (size_t i = 0; i < stages.size(); ++i) {
    const std::string name = StageName("forward", i);
    RETURN_IF_ERROR(CheckRange(name, stages[i], layer_count));
    if (stages[i].first != next) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " starts at layer ", stages[i].first,
                       ": expected layer ", next));
    }
    next = stages[i].last + 1;
  }
  if (next != end) {
    return absl::InvalidArgumentError(
        absl::StrCat("plan.forward covers ", next, " layers: expected ", end));
  }
  return absl::OkStatus();
}

// `stages` cover layer_count-1..0 in descending order.
absl::Status CheckBackward(const std::vector<LayerRange>& stages,
                           int layer_count) {
  int next = layer_count - 1;
  for (size_t i = 0; i < stages.size(); ++i) {
    const std::string name = StageName("backward", i);
    RETURN_IF_ERROR(CheckRange(name, stages[i], layer_count));
    if (stages[i].last != next) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " ends at layer ", stages[i].last,
                       next < 0 ? std::string(": every layer is covered")
                                : absl::StrCat(": expected layer ", next)));
    }
    next = stages[i].first - 1;
  }
  if (next != -1) {
    return absl::InvalidArgumentError(
        absl::StrCat("plan.backward leaves out layers 0..", next));
  }
  return absl::OkStatus();
}

absl::Status CheckSplit(const Plan& plan) {
  if (plan.split.empty()) return absl::OkStatus();
  if (static_cast<int>(plan.split.size()) != plan.slot_count()) {
    return absl::InvalidArgumentError(
        absl::StrCat("plan.split has ", plan.split.size(), " slots: expected ",
                     plan.slot_count()));
  }
  for (size_t slot = 0; slot < plan.split.size(); ++slot) {
    const std::vector<int>& parts = plan.split[slot];
    if (!parts.empty() && *std::min_element(parts.begin(), parts.end()) >= 1) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("plan.split[", slot, "] is [", absl::StrJoin(parts, ","),
                     "]: a slot has parts of at least 1"));
  }
  return absl::OkStatus();
}

// The text for the slot's width; "" for one device.
std::string SplitText(const Plan& plan, size_t slot) {
  if (plan.split.empty() || plan.split[slot].size() == 1) return "";
  const std::vector<int>& parts = plan.split[slot];
  const bool equal = std::count(parts.begin(), parts.end(), parts[0]) ==
                     static_cast<std::ptrdiff_t>(parts.size());
  return equal ? absl::StrCat(" x", parts.size())
               : absl::StrCat(" ", absl::StrJoin(parts, "+"));
}

// Layers `range` in as many runs, as equal as can be, as have at most `most`
// layers each.
std::vector<LayerRange> Cut(const LayerRange& range, int most) {
  const int runs = (range.layer_count() + most - 1) / most;
  std::vector<LayerRange> cut;
  int first = range.first;
  for (int left = runs; left > 0; --left) {
    const int layers = (range.last + 1 - first + left - 1) / left;
    cut.push_back({first, first + layers - 1});
    first += layers;
  }
  return cut;
}

// What runs again just before the backward stage.
std::vector<LayerRange> AgainBefore(const Plan& plan, int stage) {
  const int every = plan.saving.every;
  const int stages = static_cast<int>(plan.backward.size()) - stage;
  const bool begins_group =
      stages % every == 0 && stages / every <= plan.saving.groups;
  // The first group, which may be a short one, keeps all.
  if (every == 1 || !begins_group || stage <= 1) return {};
  int longest = 1;
  for (const LayerRange& forward : plan.forward) {
    longest = std::max(longest, forward.layer_count());
  }
  const LayerRange& lowest = plan.backward[stage + every - 1];
  return Cut({lowest.first, plan.backward[stage].first - 1}, longest);
}

}  // namespace

std::vector<PlanSlot> SlotsOf(const Plan& plan) {
  std::vector<PlanSlot> slots;
  slots.reserve(plan.forward.size() + 2 * plan.backward.size());
  int stage = 0;
  for (const LayerRange& layers : plan.forward) {
    slots.push_back({.layers = layers, .stage = stage++});
  }
  stage = 0;
  for (const LayerRange& layers : plan.backward) {
    for (const LayerRange& again : AgainBefore(plan, stage)) {
      slots.push_back({.layers = again, .again = true, .stage = stage});
    }
    const bool fused = plan.fused && stage == 0;
    slots.push_back({.kind = fused ? SlotKind::kFused : SlotKind::kBackward,
                     .layers = layers,
                     .stage = stage++});
  }
  return slots;
}

InputCounts CountInputs(const Plan& plan) {
  InputCounts counts;
  for (int stage = 1; stage < static_cast<int>(plan.backward.size()); ++stage) {
    ++counts.all;
    ++counts.saved;
    if (!AgainBefore(plan, stage).empty()) {
      counts.saved -= plan.saving.every - 1;
    }
  }
  return counts;
}

std::vector<int> SavedEveryTried(int asked) {
  if (asked > 0) return {asked};
  // With more, a group's own inputs are soon as many as those that are kept.
  return {1, 2, 3, 4, 6, 8, 12};
}

int FewestGroups(const std::function<bool(int groups)>& fits) {
  int groups = 1;
  while (groups < kMaxPlanLayers && !fits(groups)) ++groups;
  return groups;
}

int Plan::slot_count() const { return static_cast<int>(SlotsOf(*this).size()); }

int BackwardSlotWith(const Plan& plan, int layer) {
  const std::vector<PlanSlot> slots = SlotsOf(plan);
  const auto slot =
      std::find_if(slots.begin(), slots.end(), [layer](const PlanSlot& one) {
        return one.kind != SlotKind::kForward && one.layers.Contains(layer);
      });
  ROUNDHOUSE_CHECK(slot != slots.end()) << "layer " << layer;
  return static_cast<int>(slot - slots.begin());
}

absl::Status CheckPlan(const Plan& plan, int layer_count) {
  if (layer_count < 1 || layer_count > kMaxPlanLayers) {
    return absl::InvalidArgumentError(
        absl::StrCat("a plan for ", layer_count, " layers: 1 to ",
                     kMaxPlanLayers, " can be planned"));
  }
  if (plan.fused && plan.backward.empty()) {
    return absl::InvalidArgumentError(
        "plan.backward is empty: its first stage is the fused one");
  }
  if (!plan.backward.empty()) {
    RETURN_IF_ERROR(CheckBackward(plan.backward, layer_count));
  }
  const int forward_end = plan.fused ? plan.backward[0].first : layer_count;
  RETURN_IF_ERROR(CheckForward(plan.forward, forward_end, layer_count));
  const int every = plan.saving.every;
  if (every < 1 || (every > 1 && !plan.fused)) {
    return absl::InvalidArgumentError(
        absl::StrCat("plan.saving.every is ", every,
                     ": at least 1, and 1 without a fused stage"));
  }
  return CheckSplit(plan);
}

Plan BlockByBlock(int decoder_layers) {
  Plan plan;
  plan.fused = true;
  plan.backward = {{decoder_layers, decoder_layers}};
  for (int l = 0; l < decoder_layers; ++l) plan.forward.push_back({l, l});
  for (int l = decoder_layers - 1; l >= 0; --l) plan.backward.push_back({l, l});
  return plan;
}

std::string ToString(const Plan& plan) {
  std::string text = "forward";
  std::string again;
  size_t index = 0;
  for (const PlanSlot& slot : SlotsOf(plan)) {
    if (slot.kind != SlotKind::kForward && slot.stage == 0) {
      absl::StrAppend(&text, " backward", plan.fused ? " fused" : "");
    }
    absl::StrAppend(slot.again ? &again : &text, " ", RangeText(slot.layers),
                    SplitText(plan, index++));
  }
  if (plan.backward.empty()) absl::StrAppend(&text, " backward");
  return again.empty() ? text : absl::StrCat(text, " again", again);
}

}  // namespace roundhouse
