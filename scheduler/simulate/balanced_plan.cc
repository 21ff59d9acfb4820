#include "scheduler/simulate/balanced_plan.h"

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
    std::vector<int> counts = Fill(Earliest(parts));
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

  std::vector<int> Earliest(int parts) const {
    const double share =
        static_cast<double>(groups_.back().end) / static_cast<double>(parts);
    std::vector<std::pair<double, int>> order;
    for (int d = 0; d < machine_.device_count(); ++d) {
      order.emplace_back(FinishNs(d, share), d);
    }
    std::sort(order.begin(), order.end());
    std::vector<int> devices;
    for (int i = 0; i < parts; ++i) devices.push_back(order[i].second);
    return devices;
  }

  // Groups per device of `devices`.
  std::vector<int> Fill(const std::vector<int>& devices) {
    std::vector<int> counts(devices.size());
    const double group = static_cast<double>(groups_.back().end) /
                         static_cast<double>(groups_.size());
    for (size_t g = 0; g < groups_.size(); ++g) {
      std::pair<bool, double> best_rank;
      size_t best = devices.size();
      for (size_t i = 0; i < devices.size(); ++i) {
        const std::pair<bool, double> rank{
            !Fits(counts[i] + 1, devices[i]),
            FinishNs(devices[i], group * (counts[i] + 1))};
        if (best < devices.size() && rank >= best_rank) continue;
        best = i;
        best_rank = rank;
      }
      ++counts[best];
    }
    return counts;
  }

  static Part WithGroups(Part part, int groups) {
    part.groups = groups;
    // Where the share is not one subtree.
    const bool whole = std::has_single_bit(static_cast<unsigned>(groups));
    if (part.backward()) part.contributions = whole ? 1 : 2;
    return part;
  }

  void MeasureBytes(const Part& part) {
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
    std::vector<bool> taken(work_ns_.size());
    for (size_t i = 0; i < shares.size(); ++i) {
      const auto size = static_cast<double>(shares[i].size());
      std::pair<bool, double> best_rank;
      int best = -1;
      for (int d = 0; d < machine_.device_count(); ++d) {
        if (taken[d]) continue;
        const std::pair<bool, double> rank{!Fits(counts[i], d),
                                           FinishNs(d, size)};
        if (best >= 0 && rank >= best_rank) continue;
        best = d;
        best_rank = rank;
      }
      work_ns_[best] = best_rank.second;
      taken[best] = true;
    }
  }

  const ModelCosts& costs_;
  const Machine& machine_;
  const std::vector<IndexRange> groups_;
  std::vector<double> work_ns_;  // per device
  // Of the slot that is being shared out: a micro-batch, and what a share of
  // that many groups needs of its device.
  double turn_ns_ = 0;
  std::vector<int64_t> bytes_;
};

}  // namespace

StepPlan BalancedPlan(const Plan& stages, const std::vector<int>& widths,
                      int micro_batches, int groups, const ModelCosts& costs,
                      const Machine& machine) {
  StepPlan plan;
  plan.stages = stages;
  plan.groups = groups;
  Balance balance(costs, machine, micro_batches, groups);
  const int forward = static_cast<int>(stages.forward.size());
  for (int slot = 0; slot < plan.slot_count(); ++slot) {
    ROUNDHOUSE_CHECK(1 <= widths.at(slot) &&
                     widths[slot] <= machine.device_count());
    Part part;
    part.slot = slot;
    part.layers =
        slot < forward ? stages.forward[slot] : stages.backward[slot - forward];
    if (slot == forward) part.pass = SlotPass::kFused;
    if (slot > forward) part.pass = SlotPass::kBackward;
    plan.shares.push_back(balance.SharesOf(part, widths[slot]));
  }
  return plan;
}

}  // namespace roundhouse
