#include "tests/bench/model_inputs.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "scheduler/plan/published_planner.h"

namespace roundhouse::bench {
namespace {

absl::StatusOr<std::vector<LayerRange>> ParseRanges(const nlohmann::json& plan,
                                                    const char* direction) {
  std::vector<LayerRange> ranges;
  const auto found = plan.find(direction);
  const auto whole = [](const nlohmann::json& number) {
    return number.is_number_integer() && number >= 0 && number < kMaxPlanLayers;
  };
  bool good = found != plan.end() && found->is_array();
  for (size_t i = 0; good && i < found->size(); ++i) {
    const nlohmann::json& range = (*found)[i];
    good = range.is_array() && range.size() == 2 && whole(range[0]) &&
           whole(range[1]);
    if (good) ranges.push_back({range[0].get<int>(), range[1].get<int>()});
  }
  if (good) return ranges;
  return absl::InvalidArgumentError(absl::StrCat(
      "plan: ", direction, " must be a list of [first layer, last layer]"));
}

// Reads the lists of shares of `slots` stages.
absl::Status ParseSplit(const nlohmann::json& plan, const char* name,
                        size_t slots, std::vector<std::vector<int>>& split) {
  const auto found = plan.find(name);
  const auto share = [](const nlohmann::json& number) {
    return number.is_number_integer() && number > 0 && number < kMaxPlanLayers;
  };
  bool good =
      found != plan.end() && found->is_array() && found->size() == slots;
  for (size_t i = 0; good && i < slots; ++i) {
    const nlohmann::json& shares = (*found)[i];
    good = shares.is_array() && !shares.empty() &&
           std::all_of(shares.begin(), shares.end(), share);
    if (good) split.push_back(shares.get<std::vector<int>>());
  }
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("plan: ", name, " must be a list of ", slots,
                   " lists of shares, one a device"));
}

std::string RangesJson(const std::vector<LayerRange>& ranges) {
  return absl::StrJoin(ranges, ", ", [](std::string* out, LayerRange range) {
    absl::StrAppend(out, "[", range.first, ", ", range.last, "]");
  });
}

std::string SplitJson(const std::vector<std::vector<int>>& split) {
  return absl::StrJoin(split, ", ", [](std::string* out, const auto& parts) {
    absl::StrAppend(out, "[", absl::StrJoin(parts, ", "), "]");
  });
}

}  // namespace

absl::StatusOr<ModelCosts> FindModelCosts(const std::string& text,
                                          const std::string& path,
                                          const std::string& model) {
  ASSIGN_OR_RETURN(const std::vector<ModelCosts> models,
                   ParseModelCosts(path, text));
  for (const ModelCosts& one : models) {
    if (one.name == model) return one;
  }
  return absl::NotFoundError(
      absl::StrCat(path, " has no row of the model \"", model, "\""));
}

absl::StatusOr<Plan> PublishedPlanOf(const ModelCosts& costs, int devices,
                                     int64_t device_bytes) {
  std::vector<LayerCost> layers;
  for (int layer = 0; layer <= costs.layers; ++layer) {
    const int64_t forward_ns = costs.ForwardNs(layer);
    layers.push_back({absl::Nanoseconds(forward_ns),
                      absl::Nanoseconds(forward_ns + costs.BackwardNs(layer)),
                      costs.WeightBytes(layer), 2 * costs.WeightBytes(layer)});
  }
  PlannerOptions options;
  options.device_count = devices;
  options.device_memory_bytes = device_bytes;
  return PublishedPlan(layers, options);
}

std::string PlanJson(const Plan& plan) {
  ROUNDHOUSE_CHECK(plan.saving.every == 1) << plan.saving.every;
  std::string text =
      absl::StrCat("{\"forward\": [", RangesJson(plan.forward),
                   "], \"backward\": [", RangesJson(plan.backward), "]");
  if (!plan.split.empty()) {
    const auto backward = plan.split.begin() + plan.forward.size();
    absl::StrAppend(&text, ", \"forward_width\": [",
                    SplitJson({plan.split.begin(), backward}),
                    "], \"backward_width\": [",
                    SplitJson({backward, plan.split.end()}), "]");
  }
  return text + "}";
}

absl::StatusOr<Plan> ParsePlanJson(const std::string& text, int layers) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat("plan: a JSON object wanted, not \"", text, "\""));
  }
  Plan plan;
  plan.fused = true;
  ASSIGN_OR_RETURN(plan.forward, ParseRanges(json, "forward"));
  ASSIGN_OR_RETURN(plan.backward, ParseRanges(json, "backward"));
  if (plan.backward.empty()) {
    return absl::InvalidArgumentError("plan: backward is empty");
  }
  if (json.contains("forward_width") || json.contains("backward_width")) {
    RETURN_IF_ERROR(
        ParseSplit(json, "forward_width", plan.forward.size(), plan.split));
    RETURN_IF_ERROR(
        ParseSplit(json, "backward_width", plan.backward.size(), plan.split));
  }
  RETURN_IF_ERROR(CheckPlan(plan, layers + 1));
  return plan;
}

double WorkMs(const ModelCosts& costs, const Plan& plan) {
  int64_t ns = costs.head_forward_ns + costs.head_backward_ns +
               costs.layers * (costs.forward_ns + costs.backward_ns);
  for (const LayerRange& stage : plan.forward) {
    ns += costs.forward_ns * stage.layer_count();
  }
  return static_cast<double>(ns) * 1e-6;
}

}  // namespace roundhouse::bench
