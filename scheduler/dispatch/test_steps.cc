// Shapes, plans and steps for the tests of this folder.
#include <algorithm>

#include "scheduler/dispatch/test_world.h"

namespace roundhouse {

Plan TestPlan() { return {{{0, 1}}, {{2, 3}, {1, 1}, {0, 0}}, true}; }

StepSpec TrainStep(int rounds, bool clip) {
  StepSpec spec;
  spec.clip = clip;
  spec.plan = TestPlan();
  spec.round_micro_batches.assign(rounds, 2);
  return spec;
}

JobShape RandomShape(std::mt19937_64& random) {
  const int layers = 1 + static_cast<int>(random() % 9);
  JobShape shape = {layers, layers + 1, random() % 2 == 0, {}};
  if (random() % 3 == 0) {
    shape.trainable.assign(layers + 1, false);
    shape.trainable[1 + random() % layers] = true;
    for (int unit = 1; unit <= layers; ++unit) {
      if (random() % 2 == 0) shape.trainable[unit] = true;
    }
  }
  return shape;
}

Plan RandomPlan(std::mt19937_64& random, int layers) {
  Plan plan;
  plan.fused = true;
  auto cut = [&](int first, int last) {
    std::vector<LayerRange> stages;
    while (first <= last) {
      const int end = first + static_cast<int>(random() % (last - first + 1));
      stages.push_back({first, end});
      first = end + 1;
    }
    return stages;
  };
  const int fused_first = static_cast<int>(random() % layers);
  if (fused_first > 0) {
    plan.forward = cut(0, fused_first - 1);
    plan.backward = cut(0, fused_first - 1);
    std::reverse(plan.backward.begin(), plan.backward.end());
  }
  plan.backward.insert(plan.backward.begin(), {fused_first, layers - 1});
  if (random() % 2 == 0) plan.saving.every = 2 + static_cast<int>(random() % 3);
  if (random() % 4 == 0) plan.saving.groups = 1;
  return plan;
}

int64_t BoundaryBlocksOf(const StepSpec& spec, const JobShape& shape,
                         int most_sent) {
  const RowGradient rows =
      shape.Trains(0) ? RowGradient::kRead : RowGradient::kUnread;
  const int64_t tensors = most_sent == 0
                              ? LeastBoundaryTensors(spec.plan, rows)
                              : BoundaryTensors(spec.plan, rows, most_sent);
  return tensors * *std::max_element(spec.round_micro_batches.begin(),
                                     spec.round_micro_batches.end());
}

void SplitAtRandom(std::mt19937_64& random, StepSpec& spec) {
  spec.groups = 1 + static_cast<int>(random() % 8);
  for (int& count : spec.round_micro_batches) {
    count = 1 + static_cast<int>(random() % 10);
  }
  for (int slot = 0; slot < spec.plan.slot_count(); ++slot) {
    std::vector<int> proportions(1 + random() % 6);
    for (int& part : proportions) part = 1 + static_cast<int>(random() % 3);
    spec.plan.split.push_back(SplitOf(proportions, spec.groups));
  }
}

}  // namespace roundhouse
