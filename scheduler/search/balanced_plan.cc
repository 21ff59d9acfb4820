#include "scheduler/search/balanced_plan.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <utility>

#include "base/log.h"
#include "base/reduction.h"
#include "scheduler/simulate/device_memory.h"

namespace roundhouse {
namespace {

class Balance {
 public:
  Balance(const ModelCosts& costs, const Machine& machine, int micro_batches,
          int groups)
      : costs_(costs),
        machine_(machine),
        groups_(GroupRanges(micro_batches, groups)),
        work_ns_(machine.devices.size()) {}

  // The slot's shares; `part` has its pass and layers.
  std::vector<IndexRange> SharesOf(Part part, int width) {
    const int parts = std::min(width, static_cast<int>(groups_.size()));
    part.micro_batches = {0, 1};
    turn_ns_ = static_cast<double>(PartNs(part, costs_));
    MeasureBytes(part);
    Fill(Earliest(parts));
    std::vector<int>& counts = counts_;
    std::sort(counts.begin(), counts.end(), std::greater<>());
    std::vector<IndexRange> shares;
    size_t next = 0;
    for (const int count : counts) {
      if (count == 0) continue;
      shares.push_back({groups_[next].begin, groups_[next + count - 1].end});
      next += count;
    }
    Occupy(shares, counts);
    return shares;
  }

 private:
  double FinishNs(int device, double micro_batches) const {
    return work_ns_[device] +
           turn_ns_ * micro_batches / machine_.devices[device].speed;
  }

  // The `parts` devices that would finish an equal share first.
  const std::vector<std::pair<double, int>>& Earliest(int parts) {
    const double share =
        static_cast<double>(groups_.back().end) / static_cast<double>(parts);
    order_.clear();
    for (int d = 0; d < machine_.device_count(); ++d) {
      order_.emplace_back(FinishNs(d, share), d);
    }
    std::sort(order_.begin(), order_.end());
    order_.resize(parts);
    return order_;
  }

  // Groups per device of `devices`, to counts_.
  void Fill(const std::vector<std::pair<double, int>>& devices) {
    const double group = static_cast<double>(groups_.back().end) /
                         static_cast<double>(groups_.size());
    counts_.assign(devices.size(), 0);
    // The ranks that one more group gives each device; only the last one's
    // changes.
    ranks_.clear();
    const auto rank = [&](size_t i) {
      const int groups = counts_[i] + 1;
      const int device = devices[i].second;
      return std::pair(!Fits(groups, device), FinishNs(device, group * groups));
    };
    for (size_t i = 0; i < devices.size(); ++i) ranks_.push_back(rank(i));
    for (size_t g = 0; g < groups_.size(); ++g) {
      const auto best = static_cast<size_t>(
          std::min_element(ranks_.begin(), ranks_.end()) - ranks_.begin());
      ++counts_[best];
      if (g + 1 < groups_.size()) ranks_[best] = rank(best);
    }
  }

  static Part WithGroups(Part part, int groups) {
    part.groups = groups;
    // Where the share is not one subtree.
    const bool whole = std::has_single_bit(static_cast<unsigned>(groups));
    if (part.backward()) part.contributions = whole ? 1 : 2;
    return part;
  }

  void MeasureBytes(const Part& part) {
    // Stages of as many blocks need as much.
    const bool same =
        !bytes_.empty() && part.kind == measured_.kind &&
        part.kind != SlotKind::kFused &&
        part.layers.layer_count() == measured_.layers.layer_count();
    measured_ = part;
    if (same) return;
    bytes_.assign(1, 0);
    for (size_t groups = 1; groups <= groups_.size(); ++groups) {
      bytes_.push_back(
          PartPeakBytes(WithGroups(part, static_cast<int>(groups)), costs_));
    }
  }

  bool Fits(int groups, int device) const {
    return bytes_[groups] <= machine_.devices[device].memory_bytes;
  }

  // As EarliestFinishFeed will.
  void Occupy(const std::vector<IndexRange>& shares,
              const std::vector<int>& counts) {
    taken_.assign(work_ns_.size(), false);
    for (const size_t i : SendOrder(shares)) {
      const auto size = static_cast<double>(shares[i].size());
      std::pair<bool, double> best_rank;
      int best = -1;
      for (int d = 0; d < machine_.device_count(); ++d) {
        if (taken_[d]) continue;
        const std::pair<bool, double> rank{!Fits(counts[i], d),
                                           FinishNs(d, size)};
        if (best >= 0 && rank >= best_rank) continue;
        best = d;
        best_rank = rank;
      }
      work_ns_[best] = best_rank.second;
      taken_[best] = true;
    }
  }

  const ModelCosts& costs_;
  const Machine& machine_;
  const std::vector<IndexRange> groups_;
  std::vector<double> work_ns_;  // per device
  // For the slot that is being shared out: a micro-batch's time, and the bytes
  // that a share of so many groups needs on its device.
  double turn_ns_ = 0;
  std::vector<int64_t> bytes_;
  Part measured_;  // what bytes_ are of
  // Scratch.
  std::vector<std::pair<double, int>> order_;
  std::vector<int> counts_;
  std::vector<std::pair<bool, double>> ranks_;
  std::vector<bool> taken_;
};

}  // namespace

StepPlan BalancedPlan(const Plan& stages, const std::vector<int>& widths,
                      int micro_batches, int groups, const ModelCosts& costs,
                      const Machine& machine) {
  StepPlan plan;
  plan.stages = stages;
  plan.groups = groups;
  Balance balance(costs, machine, micro_batches, groups);
  int index = 0;
  for (const PlanSlot& slot : SlotsOf(stages)) {
    const int width = widths.at(index);
    ROUNDHOUSE_CHECK(1 <= width && width <= machine.device_count());
    Part part;
    part.slot = index++;
    part.kind = slot.kind;
    part.again = slot.again;
    part.layers = slot.layers;
    plan.shares.push_back(balance.SharesOf(part, width));
  }
  return plan;
}

}  // namespace roundhouse
