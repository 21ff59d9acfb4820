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

}  // namespace

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
  size_t slot = 0;
  for (const LayerRange& range : plan.forward) {
    absl::StrAppend(&text, " ", RangeText(range), SplitText(plan, slot++));
  }
  absl::StrAppend(&text, " backward", plan.fused ? " fused" : "");
  for (const LayerRange& range : plan.backward) {
    absl::StrAppend(&text, " ", RangeText(range), SplitText(plan, slot++));
  }
  return text;
}

}  // namespace roundhouse
