#include "scheduler/plan/step_plan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status.h"

namespace roundhouse {
namespace {

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

// `count` groups in proportion to the first `width` of `speeds`; a part that
// gets none is left out.
std::vector<IndexRange> SplitGroups(int64_t count, const double* speeds,
                                    int width) {
  std::vector<IndexRange> shares;
  int64_t next = 0;
  for (const int64_t quota : Quotas(count, speeds, width)) {
    if (quota == 0) continue;
    shares.push_back({next, next + quota});
    next += quota;
  }
  return shares;
}

// Cuts the node of leaves [begin, end) at nodes below it, one for each of
// `parts`; where they are more than leaves, the greatest ones get one.
void CutAtNodes(IndexRange node, std::vector<int> parts,
                std::vector<IndexRange>* shares) {
  while (static_cast<int64_t>(parts.size()) > node.size()) {
    // The last of equal parts goes.
    parts.erase(
        std::prev(std::min_element(parts.rbegin(), parts.rend()).base()));
  }
  const auto count = static_cast<int64_t>(parts.size());
  if (count == 1) {
    shares->push_back(node);
    return;
  }
  const auto left = static_cast<int64_t>(
      std::bit_floor(static_cast<uint64_t>(node.size() - 1)));
  const double total = std::accumulate(parts.begin(), parts.end(), 0.0);
  int64_t best = 0;
  double least = 0;
  for (int64_t cut = std::max<int64_t>(1, count - (node.size() - left));
       cut <= std::min(count - 1, left); ++cut) {
    const double sum = std::accumulate(parts.begin(), parts.begin() + cut, 0.0);
    const double off = std::abs(sum * static_cast<double>(node.size()) -
                                total * static_cast<double>(left));
    if (best != 0 && off >= least) continue;
    best = cut;
    least = off;
  }
  CutAtNodes({node.begin, node.begin + left},
             {parts.begin(), parts.begin() + best}, shares);
  CutAtNodes({node.begin + left, node.end}, {parts.begin() + best, parts.end()},
             shares);
}

// The number of sums that each part sends, given the shares of a round of
// `groups` groups.
std::vector<int64_t> SumCounts(const std::vector<IndexRange>& shares,
                               int64_t groups) {
  std::vector<int64_t> counts;
  for (const IndexRange& share : shares) {
    counts.push_back(
        static_cast<int64_t>(LargestSubtrees(groups, share).size()));
  }
  return counts;
}

int64_t SumCount(const std::vector<IndexRange>& shares, int64_t groups) {
  const std::vector<int64_t> counts = SumCounts(shares, groups);
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

int64_t FullGroups(const std::vector<int>& parts) {
  return std::accumulate(parts.begin(), parts.end(), int64_t{0});
}

std::vector<IndexRange> InProportion(const std::vector<int>& parts,
                                     int64_t groups) {
  const std::vector<double> speeds(parts.begin(), parts.end());
  return SplitGroups(groups, speeds.data(), static_cast<int>(speeds.size()));
}

std::vector<IndexRange> MicroBatchesOf(const std::vector<IndexRange>& shares,
                                       const std::vector<IndexRange>& groups) {
  std::vector<IndexRange> micro_batches;
  for (const IndexRange& share : shares) {
    micro_batches.push_back(
        {groups[share.begin].begin, groups[share.end - 1].end});
  }
  return micro_batches;
}

// What of a round's groups a share covers.
struct Cover {
  int64_t groups = 0;
  int64_t subtrees = 0;  // the largest; of a backward slot
};

std::vector<Cover> CoversOf(const std::vector<IndexRange>& shares,
                            const std::vector<IndexRange>& groups,
                            bool backward) {
  std::vector<Cover> covers;
  for (const IndexRange& share : shares) {
    const IndexRange covered = GroupsOf(share, groups);
    ROUNDHOUSE_CHECK(covered.size() > 0) << share.begin << ".." << share.end;
    Cover& cover = covers.emplace_back();
    cover.groups = covered.size();
    if (!backward) continue;
    const auto leaves = static_cast<int64_t>(groups.size());
    cover.subtrees =
        static_cast<int64_t>(LargestSubtrees(leaves, covered).size());
  }
  return covers;
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

std::vector<int> SplitOf(const std::vector<int>& proportions, int groups) {
  std::vector<int> split;
  for (const IndexRange& share : InProportion(proportions, groups)) {
    split.push_back(static_cast<int>(share.size()));
  }
  return split;
}

std::vector<IndexRange> GroupShares(const Plan& plan, int slot,
                                    int64_t groups) {
  ROUNDHOUSE_CHECK(slot >= 0 && groups >= 1)
      << "slot " << slot << ", " << groups << " groups";
  if (plan.split.empty()) return {{0, groups}};
  const std::vector<int>& parts = plan.split.at(slot);
  std::vector<IndexRange> shares = InProportion(parts, groups);
  if (groups < FullGroups(parts) &&
      SumCount(shares, groups) > MostContributions(plan, slot)) {
    shares.clear();
    CutAtNodes({0, groups}, parts, &shares);
  }
  return shares;
}

StepPlan PlanOfRound(const Plan& plan, int micro_batches, int groups) {
  StepPlan round;
  round.stages = plan;
  round.groups = groups;
  const auto ranges = GroupRanges(micro_batches, groups);
  const auto count = static_cast<int64_t>(ranges.size());
  const int slots = plan.slot_count();
  round.shares.reserve(slots);
  for (int slot = 0; slot < slots; ++slot) {
    // Mostly those of the slot before.
    if (slot > 0 &&
        (plan.split.empty() || plan.split[slot] == plan.split[slot - 1])) {
      round.shares.push_back(round.shares.back());
      continue;
    }
    round.shares.push_back(
        MicroBatchesOf(GroupShares(plan, slot, count), ranges));
  }
  return round;
}

Plan PlanOfFullRound(const StepPlan& plan, int micro_batches) {
  Plan full = plan.stages;
  full.split.clear();
  const auto groups = GroupRanges(micro_batches, plan.groups);
  bool wide = false;
  for (const auto& shares : plan.shares) {
    std::vector<int>& parts = full.split.emplace_back();
    for (const IndexRange& share : shares) {
      parts.push_back(static_cast<int>(std::count_if(
          groups.begin(), groups.end(), [&](const IndexRange& group) {
            return share.begin <= group.begin && group.end <= share.end;
          })));
    }
    wide |= parts.size() > 1;
  }
  if (!wide) full.split.clear();
  return full;
}

std::vector<IndexRange> ContributedGroups(const Plan& plan, int layer,
                                          int64_t groups) {
  const int slot = BackwardSlotWith(plan, layer);
  std::vector<IndexRange> sums;
  for (const IndexRange& share : GroupShares(plan, slot, groups)) {
    const auto subtrees = LargestSubtrees(groups, share);
    sums.insert(sums.end(), subtrees.begin(), subtrees.end());
  }
  return sums;
}

int64_t MostContributions(const Plan& plan, int slot) {
  if (plan.split.empty()) return 1;
  const std::vector<int>& parts = plan.split[slot];
  const int64_t full = FullGroups(parts);
  return SumCount(InProportion(parts, full), full);
}

int64_t MostContributionsOfAPart(const Plan& plan, int slot) {
  if (plan.split.empty()) return 1;
  int64_t most = 1;
  for (int64_t groups = FullGroups(plan.split[slot]); groups >= 1; --groups) {
    const auto counts = SumCounts(GroupShares(plan, slot, groups), groups);
    most = std::max(most, *std::max_element(counts.begin(), counts.end()));
  }
  return most;
}

StepPlan UniformPlan(const Plan& stages, const Widths& widths,
                     int micro_batches, int groups) {
  const int most = std::max({widths.forward, widths.fused, widths.backward});
  return ProportionalPlan(stages, widths, micro_batches, groups,
                          std::vector<double>(most, 1.0));
}

std::vector<IndexRange> UniformShares(const std::vector<IndexRange>& groups,
                                      int parts) {
  return ProportionalShares(groups, std::vector<double>(parts, 1.0));
}

std::vector<IndexRange> ProportionalShares(
    const std::vector<IndexRange>& groups, const std::vector<double>& speeds) {
  return MicroBatchesOf(
      SplitGroups(static_cast<int64_t>(groups.size()), speeds.data(),
                  static_cast<int>(speeds.size())),
      groups);
}

StepPlan ProportionalPlan(const Plan& stages, const Widths& widths,
                          int micro_batches, int groups,
                          std::vector<double> speeds) {
  std::sort(speeds.begin(), speeds.end(), std::greater<>());
  StepPlan plan;
  plan.stages = stages;
  plan.groups = groups;
  const auto ranges = GroupRanges(micro_batches, groups);
  const auto count = static_cast<int64_t>(ranges.size());
  for (const PlanSlot& slot : SlotsOf(stages)) {
    const int width = slot.kind == SlotKind::kForward ? widths.forward
                      : slot.kind == SlotKind::kFused ? widths.fused
                                                      : widths.backward;
    ROUNDHOUSE_CHECK(1 <= width && width <= static_cast<int>(speeds.size()));
    const int parts = static_cast<int>(std::min<int64_t>(width, count));
    plan.shares.push_back(
        MicroBatchesOf(SplitGroups(count, speeds.data(), parts), ranges));
  }
  return plan;
}

std::vector<IndexRange> EvenShares(const std::vector<IndexRange>& groups,
                                   int parts) {
  const int count = static_cast<int>(groups.size());
  ROUNDHOUSE_CHECK(1 <= parts && parts <= count);
  // least[p][g]: the sum of squares of p parts over the groups from g on, and
  // where the first of them ends.
  struct Cut {
    int64_t squares = -1;
    int end = 0;
  };
  std::vector<std::vector<Cut>> least(parts + 1, std::vector<Cut>(count + 1));
  least[0][count].squares = 0;
  for (int p = 1; p <= parts; ++p) {
    for (int g = 0; g < count; ++g) {
      for (int end = count; end > g; --end) {
        if (least[p - 1][end].squares < 0) continue;
        const int64_t size = groups[end - 1].end - groups[g].begin;
        const int64_t squares = least[p - 1][end].squares + size * size;
        Cut& cut = least[p][g];
        if (cut.squares < 0 || squares < cut.squares) cut = {squares, end};
      }
    }
  }
  std::vector<IndexRange> shares;
  for (int p = parts, g = 0; p > 0; --p) {
    const int end = least[p][g].end;
    shares.push_back({groups[g].begin, groups[end - 1].end});
    g = end;
  }
  return shares;
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
  const auto slots = static_cast<int>(plan.shares.size());
  for (int slot = 0; slot < slots; ++slot) {
    RETURN_IF_ERROR(
        CheckShares(plan, slot, micro_batches, device_count, groups));
  }
  return absl::OkStatus();
}

std::vector<size_t> SendOrder(const std::vector<IndexRange>& shares) {
  std::vector<size_t> order(shares.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return shares[a].size() > shares[b].size();
  });
  return order;
}

std::vector<Part> PartsOf(const StepPlan& plan, int micro_batches) {
  const auto groups = GroupRanges(micro_batches, plan.groups);
  std::vector<Part> parts;
  parts.reserve(std::accumulate(
      plan.shares.begin(), plan.shares.end(), size_t{0},
      [](size_t sum, const auto& shares) { return sum + shares.size(); }));
  // The covers of the slot's shares; mostly the last slot's.
  std::vector<Cover> covers;
  std::vector<size_t> order;
  bool sums_counted = false;
  int index = 0;
  for (const PlanSlot& slot : SlotsOf(plan.stages)) {
    const auto& shares = plan.shares[index];
    Part part;
    part.slot = index;
    part.kind = slot.kind;
    part.again = slot.again;
    part.layers = slot.layers;
    if (index == 0 || part.backward() != sums_counted ||
        shares != plan.shares[index - 1]) {
      sums_counted = part.backward();
      covers = CoversOf(shares, groups, part.backward());
      order = SendOrder(shares);
    }
    ++index;
    for (const size_t i : order) {
      part.micro_batches = shares[i];
      part.groups = covers[i].groups;
      part.contributions = covers[i].subtrees;
      parts.push_back(part);
    }
  }
  return parts;
}

std::string ToString(const StepPlan& plan) {
  std::map<std::string, std::string> texts;  // by what the slots do
  size_t index = 0;
  for (const PlanSlot& slot : SlotsOf(plan.stages)) {
    absl::StrAppend(&texts[slot.again ? "again" : SlotKindName(slot.kind)],
                    " [", slot.layers.first, ",", slot.layers.last, "] x",
                    plan.shares[index++].size());
  }
  std::vector<std::string> found;
  for (const char* what : {"forward", "fused", "backward", "again"}) {
    const auto text = texts.find(what);
    if (text != texts.end()) found.push_back(what + text->second);
  }
  return absl::StrJoin(found, " ");
}

}  // namespace roundhouse
