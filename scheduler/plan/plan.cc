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
  const int last = static_cast<int>(plan.backward.size()) - 1;
  const int stages = last - stage + 1;  // from here on
  const bool begins_group = stages % plan.saved_every == 0 &&
                            stages / plan.saved_every <= plan.again_groups;
  // The first group, which may be a short one, keeps all.
  if (plan.saved_every == 1 || !begins_group || stage <= 1) return {};
  int longest = 1;
  for (const LayerRange& forward : plan.forward) {
    longest = std::max(longest, forward.layer_count());
  }
  const LayerRange& lowest = plan.backward[stage + plan.saved_every - 1];
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
      counts.saved -= plan.saved_every - 1;
    }
  }
  return counts;
}

std::vector<int> SavedEveryTried(int asked) {
  if (asked > 0) return {asked};
  // Each takes about two thirds of the one before, down to where little is left
  // to save.
  return {1, 2, 3, 4, 6, 8, 12};
}

int Plan::slot_count() const {
  if (saved_every > 1) return static_cast<int>(SlotsOf(*this).size());
  return static_cast<int>(forward.size() + backward.size());
}

int BackwardSlot(const Plan& plan, int stage) {
  int slot = static_cast<int>(plan.forward.size()) + stage;
  for (int before = 0; before <= stage; ++before) {
    slot += static_cast<int>(AgainBefore(plan, before).size());
  }
  return slot;
}

int BackwardSlotWith(const Plan& plan, int layer) {
  const auto stage = std::find_if(
      plan.backward.begin(), plan.backward.end(),
      [layer](const LayerRange& range) { return range.Contains(layer); });
  ROUNDHOUSE_CHECK(stage != plan.backward.end()) << "layer " << layer;
  return BackwardSlot(plan, static_cast<int>(stage - plan.backward.begin()));
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
  if (plan.saved_every < 1 || (plan.saved_every > 1 && !plan.fused)) {
    return absl::InvalidArgumentError(
        absl::StrCat("plan.saved_every is ", plan.saved_every,
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
  size_t index = 0;
  bool again = false;
  for (const PlanSlot& slot : SlotsOf(plan)) {
    if (slot.again && !again) absl::StrAppend(&text, " again");
    const bool first = slot.kind != SlotKind::kForward && slot.stage == 0;
    if (first || (again && !slot.again)) absl::StrAppend(&text, " backward");
    if (slot.kind == SlotKind::kFused) absl::StrAppend(&text, " fused");
    again = slot.again;
    absl::StrAppend(&text, " ", RangeText(slot.layers),
                    SplitText(plan, index++));
  }
  if (plan.backward.empty()) absl::StrAppend(&text, " backward");
  return text;
}

}  // namespace roundhouse
