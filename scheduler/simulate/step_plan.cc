#include "scheduler/simulate/step_plan.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"

namespace roundhouse {
namespace {

int ForwardCount(const StepPlan& plan) {
  return static_cast<int>(plan.stages.forward.size());
}

const LayerRange& StageOf(const StepPlan& plan, int slot) {
  const int forward = ForwardCount(plan);
  return slot < forward ? plan.stages.forward[slot]
                        : plan.stages.backward[slot - forward];
}

SlotPass PassOf(const StepPlan& plan, int slot) {
  const int forward = ForwardCount(plan);
  if (slot < forward) return SlotPass::kForward;
  return slot == forward ? SlotPass::kFused : SlotPass::kBackward;
}

// The groups whose micro-batches are `share`; empty when it ends inside one.
IndexRange GroupsOf(const IndexRange& share,
                    const std::vector<IndexRange>& groups) {
  IndexRange covered{-1, -1};
  for (size_t i = 0; i < groups.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    if (groups[i].begin == share.begin) covered.begin = index;
    if (groups[i].end == share.end) covered.end = index + 1;
  }
  if (covered.begin < 0 || covered.end <= covered.begin) return {0, 0};
  return covered;
}

// How many of `count` groups each of the devices gets: whole quotas first, the
// rest to the largest remainders, of equals to the first.
std::vector<int64_t> Quotas(int64_t count, const double* speeds, int width) {
  const double total = std::accumulate(speeds, speeds + width, 0.0);
  std::vector<int64_t> quotas;
  std::vector<std::pair<double, int>> remainders;
  int64_t left = count;
  for (int i = 0; i < width; ++i) {
    const double quota = static_cast<double>(count) * speeds[i] / total;
    quotas.push_back(static_cast<int64_t>(quota));
    left -= quotas.back();
    remainders.emplace_back(static_cast<double>(quotas.back()) - quota, i);
  }
  std::stable_sort(remainders.begin(), remainders.end());
  for (int64_t i = 0; i < left; ++i) ++quotas[remainders[i].second];
  return quotas;
}

std::vector<IndexRange> Shares(const std::vector<IndexRange>& groups, int width,
                               const std::vector<double>& speeds) {
  const auto count = static_cast<int64_t>(groups.size());
  const int parts = static_cast<int>(std::min<int64_t>(width, count));
  std::vector<IndexRange> shares;
  int64_t next = 0;
  for (const int64_t quota : Quotas(count, speeds.data(), parts)) {
    if (quota == 0) continue;
    shares.push_back({groups[next].begin, groups[next + quota - 1].end});
    next += quota;
  }
  return shares;
}

absl::Status CheckShares(const StepPlan& plan, int slot, int micro_batches,
                         int device_count,
                         const std::vector<IndexRange>& groups) {
  const auto& shares = plan.shares[slot];
  auto error = [slot](const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat("slot ", slot, why));
  };
  if (static_cast<int>(shares.size()) > device_count) {
    return error(absl::StrCat(" has ", shares.size(), " parts for ",
                              device_count, " devices"));
  }
  int64_t next = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    if (shares[i].begin != next || GroupsOf(shares[i], groups).size() == 0) {
      return error(absl::StrCat(" part ", i, " has micro-batches ",
                                shares[i].begin, "..", shares[i].end - 1,
                                ": not the next whole groups"));
    }
    next = shares[i].end;
  }
  if (next != micro_batches) {
    return error(
        absl::StrCat(" runs ", next, " of ", micro_batches, " micro-batches"));
  }
  return absl::OkStatus();
}

}  // namespace

StepPlan UniformPlan(const Plan& stages, const Widths& widths,
                     int micro_batches, int groups) {
  const int most = std::max({widths.forward, widths.fused, widths.backward});
  return ProportionalPlan(stages, widths, micro_batches, groups,
                          std::vector<double>(most, 1.0));
}

StepPlan ProportionalPlan(const Plan& stages, const Widths& widths,
                          int micro_batches, int groups,
                          std::vector<double> speeds) {
  std::sort(speeds.begin(), speeds.end(), std::greater<>());
  StepPlan plan;
  plan.stages = stages;
  plan.groups = groups;
  const auto ranges = GroupRanges(micro_batches, groups);
  for (int slot = 0; slot < plan.slot_count(); ++slot) {
    const SlotPass pass = PassOf(plan, slot);
    const int width = pass == SlotPass::kForward ? widths.forward
                      : pass == SlotPass::kFused ? widths.fused
                                                 : widths.backward;
    ROUNDHOUSE_CHECK(1 <= width && width <= static_cast<int>(speeds.size()));
    plan.shares.push_back(Shares(ranges, width, speeds));
  }
  return plan;
}

absl::Status CheckStepPlan(const StepPlan& plan, int layer_count,
                           int micro_batches, int device_count) {
  RETURN_IF_ERROR(CheckPlan(plan.stages, layer_count));
  if (!plan.stages.fused) {
    return absl::InvalidArgumentError("the plan has no fused stage");
  }
  if (micro_batches < 1 || plan.groups < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        micro_batches, " micro-batches in ", plan.groups, " groups"));
  }
  if (plan.look_ahead < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("look_ahead is ", plan.look_ahead));
  }
  if (static_cast<int>(plan.shares.size()) != plan.slot_count()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "shares of ", plan.shares.size(), " slots of ", plan.slot_count()));
  }
  const auto groups = GroupRanges(micro_batches, plan.groups);
  for (int slot = 0; slot < plan.slot_count(); ++slot) {
    RETURN_IF_ERROR(
        CheckShares(plan, slot, micro_batches, device_count, groups));
  }
  return absl::OkStatus();
}

std::vector<Part> PartsOf(const StepPlan& plan, int micro_batches) {
  const auto groups = GroupRanges(micro_batches, plan.groups);
  const auto leaves = static_cast<int64_t>(groups.size());
  std::vector<Part> parts;
  for (int slot = 0; slot < plan.slot_count(); ++slot) {
    for (const IndexRange& share : plan.shares[slot]) {
      const IndexRange covered = GroupsOf(share, groups);
      ROUNDHOUSE_CHECK(covered.size() > 0) << "slot " << slot;
      Part part;
      part.slot = slot;
      part.pass = PassOf(plan, slot);
      part.layers = StageOf(plan, slot);
      part.micro_batches = share;
      part.groups = covered.size();
      if (part.backward()) {
        part.contributions =
            static_cast<int64_t>(LargestSubtrees(leaves, covered).size());
      }
      parts.push_back(part);
    }
  }
  return parts;
}

int64_t PartNs(const Part& part, const ModelCosts& costs) {
  int64_t ns = 0;
  for (int layer = part.layers.first; layer <= part.layers.last; ++layer) {
    if (part.pass == SlotPass::kBackward) ns += costs.RecomputeNs(layer);
    if (part.pass != SlotPass::kBackward) ns += costs.ForwardNs(layer);
    if (part.pass != SlotPass::kForward) ns += costs.BackwardNs(layer);
  }
  return ns * part.micro_batches.size();
}

std::string ToString(const StepPlan& plan) {
  std::string text;
  for (int slot = 0; slot < plan.slot_count(); ++slot) {
    const LayerRange& stage = StageOf(plan, slot);
    if (slot == 0 && PassOf(plan, 0) == SlotPass::kForward) text = "forward";
    if (slot == ForwardCount(plan)) absl::StrAppend(&text, " fused");
    if (slot == ForwardCount(plan) + 1) absl::StrAppend(&text, " backward");
    absl::StrAppend(&text, " [", stage.first, ",", stage.last, "] x",
                    plan.shares[slot].size());
  }
  return text;
}

}  // namespace roundhouse
