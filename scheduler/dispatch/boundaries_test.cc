// Jobs whose activations and gradients between stages have the fewest blocks
// there may be: random plans that change from step to step, widths, devices,
// evaluations, losses, devices that leave, pauses, steps that are given up.
// Every step ends, and nobody finds another's bytes (World).  ROUNDHOUSE_COUNT
// says how many histories, ROUNDHOUSE_SEED which is the first.
#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "base/number_from_environment.h"
#include "gtest/gtest.h"
#include "scheduler/dispatch/test_world.h"

namespace roundhouse {
namespace {

constexpr uint64_t kParts = 4;  // that may run side by side
constexpr int kSteps = 5;       // of each job

JobShape AnyShape(std::mt19937_64& random) {
  JobShape shape = RandomShape(random);
  shape.stale = random() % 4 == 0;
  shape.one_pass = random() % 4 == 0;
  return shape;
}

// The steps of a job, with the fewest blocks that each of their plans needs:
// all have the same, so that the next one may begin under the last one.
std::vector<StepSpec> RandomSteps(std::mt19937_64& random,
                                  const JobShape& shape) {
  std::vector<StepSpec> steps;
  StepSpec most;  // blocks
  const bool splits = random() % 2 == 0;
  Plan plan;
  for (int i = 0; i < kSteps; ++i) {
    const int rounds = shape.one_pass ? 1 : 1 + static_cast<int>(random() % 3);
    StepSpec step = TrainStep(rounds, !shape.one_pass && random() % 2 == 0);
    if (i == 0 || random() % 2 == 0)
      plan = RandomPlan(random, shape.layer_count);
    step.plan = plan;
    step.plan.split.clear();
    if (splits) SplitAtRandom(random, step);
    step.train = random() % 4 != 0;
    const ContributionBlocks blocks = BlocksOf(step.plan, rounds, 1);
    most.blocks.layers = std::max(most.blocks.layers, blocks.layers);
    most.blocks.head = std::max(most.blocks.head, blocks.head);
    most.boundary_blocks =
        std::max(most.boundary_blocks, BoundaryBlocksOf(step, shape, 0));
    steps.push_back(step);
  }
  for (StepSpec& step : steps) {
    step.blocks = most.blocks;
    step.boundary_blocks = most.boundary_blocks;
  }
  return steps;
}

class Boundaries {
 public:
  explicit Boundaries(uint64_t seed)
      : random_(seed),
        shape_(AnyShape(random_)),
        devices_(1 + static_cast<int>(random_() % 5)),
        world_(shape_, devices_, seed * 7) {
    world_.report_contributions = random_() % 2 == 0;
    world_.dispatcher().AddJob(kOther, shape_, {},
                               kPriorities[random_() % kPriorityCount]);
    for (const JobId job : {kJob, kOther}) {
      steps_[job] = RandomSteps(random_, shape_);
      if (job == kJob || random_() % 2 == 0) Begin(job);
    }
  }

  void Run() {
    for (int i = 0; i < 20000; ++i) {
      if (random_() % 16 == 0) Disturb();
      const bool some = world_.StepOnce();
      BeginMore();
      if (!some && held_.empty() && Over()) return;
      if (!some) EndDisturbances();
      if (::testing::Test::HasFailure()) return;
    }
    ADD_FAILURE() << "jobs do not end";
  }

 private:
  bool Over() {
    for (const JobId job : {kJob, kOther}) {
      const bool begun = begun_[job] > 0;
      const bool all = begun_[job] == kSteps || abandoned_ == job;
      if (!world_.Idle(job) || (begun && !all)) return false;
    }
    return true;
  }

  void Begin(JobId job) { world_.Begin(steps_[job][begun_[job]++], job); }

  // As many steps as may be unfinished.
  void BeginMore() {
    while (seen_ < world_.done_of.size()) {
      const JobId job{world_.done_of[seen_++]};
      if (begun_[job] < kSteps && abandoned_ != job) Begin(job);
    }
    if (abandoned_ == kJob && world_.quiet > 0) {  // it begins anew
      abandoned_ = JobId{};
      if (begun_[kJob] < kSteps) Begin(kJob);
    }
    if (!ahead_ && random_() % 4 == 0 && abandoned_ != kJob &&
        begun_[kJob] < kSteps) {
      ahead_ = true;  // one more under the first
      Begin(kJob);
    }
  }

  void Disturb() {
    const int live = devices_ - lost_;
    const int victim = lost_ + static_cast<int>(random_() % live);
    switch (random_() % 8) {
      case 0:
        world_.CrashHost();
        break;
      case 1:
        if (live == 1) break;
        world_.Crash(lost_);
        if (random_() % 2 == 0) world_.StepOnce();
        world_.Lose(lost_++);
        break;
      case 2:
        world_.LeaveForAWhile(random_, victim);
        break;
      case 3:
      case 4:
        Hold(random_() % 2 == 0 ? kJob : kOther);
        break;
      case 5:
        if (random_() % 8 == 0) Abandon();
        break;
      case 6:
        world_.SetPriority(random_() % 2 == 0 ? kJob : kOther,
                           kPriorities[random_() % kPriorityCount]);
        break;
      default:
        world_.Crash(victim);
        for (uint64_t i = random_() % 4; i > 0; --i) world_.StepOnce();
        world_.Respawn(victim);
    }
  }

  void Hold(JobId job) {
    if (held_[job]) {
      world_.ReleaseSlots(job);
      held_.erase(job);
    } else {
      held_[job] = true;
      world_.HoldSlots(
          random_() % 2 == 0 ? StartedSlots::kWithdrawn : StartedSlots::kEnd,
          job);
    }
  }

  void Abandon() {
    if (abandons_ || world_.Updating() || world_.Idle()) return;
    abandons_ = true;
    abandoned_ = kJob;
    world_.Abandon();
  }

  void EndDisturbances() {
    for (const auto& [job, held] : held_) {
      if (held) world_.ReleaseSlots(job);
    }
    held_.clear();
  }

  std::mt19937_64 random_;
  const JobShape shape_;
  const int devices_;
  World world_;
  std::map<JobId, std::vector<StepSpec>> steps_;
  std::map<JobId, int> begun_;
  std::map<JobId, bool> held_;
  JobId abandoned_{};
  bool abandons_ = false;  // once
  bool ahead_ = false;
  size_t seen_ = 0;
  int lost_ = 0;
};

class BoundariesTest : public testing::TestWithParam<uint64_t> {};

TEST_P(BoundariesTest, EveryStepEndsWithTheFewestBlocks) {
  const uint64_t first = NumberFromEnvironment("ROUNDHOUSE_SEED", 1);
  const uint64_t end = first + NumberFromEnvironment("ROUNDHOUSE_COUNT", 2000);
  for (uint64_t seed = first + GetParam(); seed < end; seed += kParts) {
    SCOPED_TRACE(seed);
    Boundaries(seed).Run();
    ASSERT_FALSE(HasFailure());
  }
}

INSTANTIATE_TEST_SUITE_P(Parts, BoundariesTest,
                         testing::Range<uint64_t>(0, kParts));

}  // namespace
}  // namespace roundhouse
