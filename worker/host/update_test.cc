// Reduction and update in one pass beside the two operations, without a worker.
#include "worker/host/update.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "worker/host/chunk_pool.h"
#include "worker/host/job_view.h"
#include "worker/host/journal.h"
#include "worker/host/reduce.h"
#include "worker/host/test_job.h"
#include "worker/host/torch_threads.h"

namespace roundhouse::worker {
namespace {

constexpr uint32_t kUnit = 1;

struct Case {
  int threads;
  DType contributions;
  float scale;
};

wire::HostOp UpdateOp(TestJob& job, float scale) {
  wire::HostOp op;
  op.job = TestJob::kJob;
  op.kind = HostOpKind::kUpdate;
  op.unit = kUnit;
  op.weights = job.weights(kUnit);
  op.step = 3;
  op.learning_rate = 1e-2;
  op.beta1 = 0.9;
  op.beta2 = 0.95;
  op.epsilon = 1e-8;
  op.weight_decay = 0.1;
  op.gradient_scale = scale;
  return op;
}

// Contributes five groups, as slots of four and one would send them.
void Contribute(TestJob& job, DType dtype, wire::HostOp& op) {
  op.total_groups = 5;
  op.want_norm = true;
  op.contribution_dtype = dtype;
  const uint64_t elements = job.unit(kUnit).element_count;
  for (const auto& [first, count] :
       std::vector<std::pair<uint32_t, uint32_t>>{{0, 2}, {2, 2}, {4, 1}}) {
    op.contributions.push_back(
        {first, count, job.RandomValues(dtype, elements)});
  }
}

// All that an update leaves.
std::string Updated(TestJob& job) {
  const wire::UnitLayout& u = job.unit(kUnit);
  const uint64_t fp32 = u.element_count * sizeof(float);
  return job.Bytes(job.weights(kUnit)) + job.Bytes({u.master_offset, fp32}) +
         job.Bytes({u.exp_avg_offset, fp32}) +
         job.Bytes({u.exp_avg_sq_offset, fp32}) +
         job.Bytes({u.norm_partials_offset, u.chunk_count * sizeof(double)});
}

JobView View(TestJob& job) {
  return *JobView::Create(job.arena(), job.layout_offset());
}

void RunAll(const JobView& view, uint64_t operation, ChunkWork& work,
            int threads) {
  ChunkPool pool(threads, UseOneTorchThread);
  const absl::Status status =
      RunJournalled(view, kUnit, operation, work, pool, [] {});
  EXPECT_TRUE(status.ok()) << status;
}

class OnePassTest : public testing::TestWithParam<Case> {};

TEST_P(OnePassTest, HasTheBitsOfReductionAndUpdate) {
  const auto [threads, dtype, scale] = GetParam();
  const TestJobOptions options = {.dtype = DType::kBF16, .seed = 5};
  TestJob two(options);
  wire::HostOp reduction;
  reduction.unit = kUnit;
  Contribute(two, dtype, reduction);
  const JobView two_view = View(two);
  const auto reduce = *Reduce::Make(two.arena(), two_view, reduction, threads);
  RunAll(two_view, 1, *reduce, threads);
  const auto later =
      *Update::Make(two.arena(), two_view, UpdateOp(two, scale), threads);
  RunAll(two_view, 2, *later, threads);
  EXPECT_EQ(later->NormSquared(), 0);  // the reduction had it

  TestJob one(options);
  one.unit(kUnit).grad_sum_offset = 0;
  wire::HostOp both = UpdateOp(one, scale);
  Contribute(one, dtype, both);
  const JobView one_view = View(one);
  const std::string before = Updated(one);
  const auto update = *Update::Make(one.arena(), one_view, both, threads);
  RunAll(one_view, 1, *update, threads);
  EXPECT_NE(Updated(one), before);
  EXPECT_EQ(Updated(one), Updated(two));
  EXPECT_EQ(update->NormSquared(), reduce->NormSquared());
  EXPECT_GT(update->NormSquared(), 0);
}

INSTANTIATE_TEST_SUITE_P(Cases, OnePassTest,
                         testing::Values(Case{1, DType::kF32, 1},
                                         Case{3, DType::kBF16, 1},
                                         Case{2, DType::kF32, 0.75f}));

TEST(UpdateTest, NeedsASumOrContributions) {
  TestJob job({.seed = 5});
  job.unit(kUnit).grad_sum_offset = 0;
  const JobView view = View(job);
  const auto update = Update::Make(job.arena(), view, UpdateOp(job, 1), 1);
  EXPECT_EQ(update.status().message(),
            "update: unit 1 has neither a sum nor contributions");
  wire::HostOp reduction;
  reduction.unit = kUnit;
  Contribute(job, DType::kF32, reduction);
  EXPECT_EQ(Reduce::Make(job.arena(), view, reduction, 1).status().message(),
            "unit 1 keeps no gradient sum: its update adds");
}

TEST(UpdateTest, ContributionsCoverEveryGroupOnce) {
  TestJob job({.seed = 5});
  wire::HostOp op = UpdateOp(job, 1);
  Contribute(job, DType::kF32, op);
  op.contributions.pop_back();
  const JobView view = View(job);
  EXPECT_EQ(Update::Make(job.arena(), view, op, 1).status().message(),
            "contributions cover 4 of 5 groups");
}

}  // namespace
}  // namespace roundhouse::worker
