// What the daemon takes a slot to hold on its device
// (server/planning/plan_limits) against what the worker counts for the slot's
// command (worker/slot).
#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/plan/step_plan.h"
#include "server/planning/plan_limits.h"
#include "server/steps/commands.h"
#include "server/testing/test_boundaries.h"
#include "server/testing/test_model.h"
#include "worker/board/job_tables.h"
#include "worker/board/slot_plan.h"

namespace roundhouse {
namespace {

constexpr int kLayers = 6;
constexpr int kMicroBatches = 8;
constexpr int64_t kRows = 2;
constexpr int64_t kRowTokens = 16;
constexpr int kPlans = 60;

class SlotMemory {
 public:
  SlotMemory(bool tied, bool adapters, bool packed, bool with_libraries,
             bool rounded, bool holds_sums, int groups)
      : arena_(*HostArena::Create(256 << 20, 3)), groups_(groups) {
    TrainingStateOptions state = TestStateOptions(tied);
    state.model = TestModel(tied, kLayers);
    if (adapters) state.adapter = TestAdapter();
    if (rounded) state.dtype = DType::kBF16;
    state_ = MakeTestState(*arena_, state);
    limits_.model = {state.model, state.adapter, state.dtype};
    limits_.groups = groups;
    limits_.device = {uint64_t{1} << 40, with_libraries, holds_sums};
    limits_.working = {
        .batch = {kRows, kRowTokens}, .dtype = state.dtype, .packed = packed};
    RoundBuffersOptions& buffers = limits_.buffers;
    buffers.micro_batches = kMicroBatches;
    buffers.rows = kRows;
    buffers.row_tokens = kRowTokens;
    buffers.hidden_size = state.model.hidden_size;
    buffers.row_gradient = adapters ? RowGradient::kUnread : RowGradient::kRead;
    buffers.packed = packed;
    buffers.dtype = state.dtype;
    buffers.contributions.dtype = state.dtype;
    buffers.contributions.units = ContributedUnits(state.model, state.adapter);
  }

  uint64_t Limit(const Plan& plan) const {
    return PlanLimits(limits_).LargestSlotBytes(plan);
  }

  // What the slots of a round of so many micro-batches take; 0: the worker
  // refuses one, which is reported.
  uint64_t Counted(const Plan& plan, int micro_batches) const {
    RoundBuffersOptions options = limits_.buffers;
    options.plan = plan;
    options.layers = kLayers + 1;
    options.boundary_tensors = 100;  // enough
    const auto buffers = RoundBuffers::Create(*arena_, options);
    EXPECT_TRUE(buffers.ok()) << buffers.status();
    BlockPool pool;
    const RoundBoundaries boundaries =
        TestRound(plan, options.row_gradient, micro_batches, pool);
    const StepData step = Step(micro_batches);
    const auto tables =
        worker::ReadJobTables(arena_->arena(), state_->layout_offset());
    EXPECT_TRUE(tables.ok()) << tables.status();
    uint64_t most = 0;
    for (const Part& part :
         PartsOf(PlanOfRound(plan, micro_batches, groups_), micro_batches)) {
      RunSlotAction action;
      action.slot = SlotId{9};
      action.kind = part.kind;
      action.layers = part.layers;
      action.micro_batches = part.micro_batches;
      action.blocks = BlocksOfPart(part);
      action.boundaries = boundaries.OfSlot(part.slot, part.micro_batches);
      wire::RunSlot command = SlotCommand(action, step, *state_, **buffers);
      const bool holds = limits_.device.holds_sums &&
                         !limits_.model.adapter.present() && part.backward();
      command.sums = holds ? wire::SumPlace::kDevice : wire::SumPlace::kHost;
      const auto slot = worker::PlanSlot(
          command, **tables, arena_->arena().size_bytes(),
          {limits_.device.bytes, limits_.device.with_libraries});
      EXPECT_TRUE(slot.ok()) << slot.status();
      if (!slot.ok()) return 0;
      most = std::max(most, slot->device_bytes() + slot->working_bytes);
    }
    return most;
  }

 private:
  // As the dispatcher would, were nothing else sent.
  std::vector<int> BlocksOfPart(const Part& part) const {
    std::vector<int> blocks;
    int next = 0;
    for (int layer = part.layers.first; layer <= part.layers.last; ++layer) {
      const bool head = layer == kLayers;
      if (head && limits_.model.adapter.present()) continue;
      for (int64_t i = 0; i < part.contributions; ++i) {
        blocks.push_back(head ? static_cast<int>(i) : next++);
      }
    }
    return blocks;
  }

  // Every row as long as rows get.
  StepData Step(int micro_batches) const {
    StepData step;
    step.target_tokens = 1;
    step.version = 1;
    step.next_version = 2;
    RoundData& round = step.rounds.emplace_back();
    round.pass = 3;
    const auto groups = GroupRanges(micro_batches, groups_);
    round.group_count = static_cast<uint32_t>(groups.size());
    for (size_t g = 0; g < groups.size(); ++g) {
      round.groups.insert(round.groups.end(), groups[g].size(),
                          static_cast<uint32_t>(g));
    }
    for (int64_t m = 0; m < micro_batches; ++m) {
      round.micro_batches.push_back({{2 * m, 2 * m + 1}, kRowTokens});
    }
    return step;
  }

  std::unique_ptr<HostArena> arena_;
  std::unique_ptr<TrainingState> state_;
  PlanLimitsOptions limits_;
  const int groups_;
};

// Cuts [0, end) into stages of 1 to 3 layers, ascending.
std::vector<LayerRange> Stages(int end, std::mt19937& random) {
  std::vector<LayerRange> stages;
  for (int first = 0; first < end;) {
    const int last = std::min(end - 1, first + static_cast<int>(random() % 3));
    stages.push_back({first, last});
    first = last + 1;
  }
  return stages;
}

Plan RandomPlan(int groups, std::mt19937& random) {
  const int tail = static_cast<int>(random() % (kLayers + 1));
  Plan plan;
  plan.fused = true;
  plan.forward = Stages(tail, random);
  plan.backward = Stages(tail, random);
  plan.backward.push_back({tail, kLayers});
  std::reverse(plan.backward.begin(), plan.backward.end());
  for (int slot = 0; slot < plan.slot_count(); ++slot) {
    std::vector<int> parts;
    for (int left = groups; left > 0;) {
      parts.push_back(1 + static_cast<int>(random() % left));
      left -= parts.back();
    }
    plan.split.push_back(parts);
  }
  return plan;
}

TEST(SlotMemoryTest, TheDaemonCountsNoLessThanTheWorker) {
  const uint32_t seed = 7;
  std::mt19937 random(seed);
  double closest = 0;
  for (int i = 0; i < kPlans; ++i) {
    const bool tied = random() % 2 == 0;
    const bool adapters = random() % 2 == 0;
    const bool packed = random() % 2 == 0;
    const bool with_libraries = random() % 2 == 0;
    const int groups = 1 << random() % 4;
    const bool rounded = !adapters && random() % 2 == 0;
    const bool holds_sums = random() % 2 == 0;
    const SlotMemory memory(tied, adapters, packed, with_libraries, rounded,
                            holds_sums, groups);
    const Plan plan = RandomPlan(groups, random);
    const uint64_t limit = memory.Limit(plan);
    uint64_t most = 0;
    for (int micro_batches = 1; micro_batches <= kMicroBatches;
         ++micro_batches) {
      const uint64_t counted = memory.Counted(plan, micro_batches);
      EXPECT_LE(counted, limit)
          << "seed " << seed << " plan " << i << ": " << ToString(plan)
          << ", a round of " << micro_batches;
      most = std::max(most, counted);
    }
    const double share = static_cast<double>(most) / static_cast<double>(limit);
    // Not much more either: what is refused would not have fitted.
    EXPECT_GT(share, 0.7) << "seed " << seed << " plan " << i << ": "
                          << ToString(plan);
    closest = std::max(closest, share);
  }
  EXPECT_GT(closest, 0.9);
}

}  // namespace
}  // namespace roundhouse
