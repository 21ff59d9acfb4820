#include "scheduler/plan/contribution_blocks.h"

#include <algorithm>
#include <map>
#include <vector>

#include "scheduler/plan/step_plan.h"

namespace roundhouse {
namespace {

// Sums per layer of one slot of the plan.
struct SlotSums {
  int64_t all = 0;
  int64_t of_a_part = 0;
};

class SumsOfSlots {
 public:
  explicit SumsOfSlots(const Plan& plan) : plan_(plan) {}

  const SlotSums& Of(int slot) {
    const auto [found, added] = known_.try_emplace(
        plan_.split.empty() ? std::vector<int>() : plan_.split[slot]);
    if (added) {
      found->second = {MostContributions(plan_, slot),
                       MostContributionsOfAPart(plan_, slot)};
    }
    return found->second;
  }

 private:
  const Plan& plan_;
  std::map<std::vector<int>, SlotSums> known_;  // by split
};

// The largest sum of `length` neighbours, the first coming after the last.
int64_t MostInARow(const std::vector<int64_t>& values, size_t length) {
  if (length >= values.size()) length = values.size();
  int64_t sum = 0;
  for (size_t i = 0; i < length; ++i) sum += values[i];
  int64_t most = sum;
  for (size_t i = 0; i < values.size(); ++i) {
    sum += values[(i + length) % values.size()] - values[i];
    most = std::max(most, sum);
  }
  return most;
}

}  // namespace

ContributionBlocks BlocksOf(const Plan& plan, int64_t rounds, int most_sent) {
  const int head = plan.backward.front().last;
  const auto width = [&plan](int slot) {
    return plan.split.empty() ? size_t{1} : plan.split[slot].size();
  };
  SumsOfSlots sums(plan);
  ContributionBlocks all;
  std::vector<int64_t> parts;  // blocks of each
  size_t widest = 1;
  int slot = -1;
  for (const PlanSlot& one : SlotsOf(plan)) {
    ++slot;
    if (one.kind == SlotKind::kForward) {
      parts.insert(parts.end(), width(slot), 0);
      continue;
    }
    const LayerRange& stage = one.layers;
    const SlotSums& of_slot = sums.Of(slot);
    const int64_t layers = stage.layer_count() - (stage.last == head ? 1 : 0);
    if (stage.last == head) all.head = of_slot.all;
    all.layers += layers * of_slot.all;
    parts.insert(parts.end(), width(slot), layers * of_slot.of_a_part);
    widest = std::max(widest, width(slot));
  }
  const int64_t sets = rounds > 1 && plan.slot_count() == 1 ? 2 : 1;
  const auto in_a_row = static_cast<size_t>(most_sent) + widest;
  // More than a round's slots: they come again.
  const auto times =
      static_cast<int64_t>((in_a_row + parts.size() - 1) / parts.size());
  ContributionBlocks blocks;
  blocks.layers =
      std::min(sets * all.layers, times * MostInARow(parts, in_a_row));
  blocks.head = sets * all.head;
  return blocks;
}

}  // namespace roundhouse
