#include "server/planning/plan_search.h"

#include <algorithm>
#include <limits>

#include "gtest/gtest.h"
#include "scheduler/plan/step_plan.h"
#include "server/testing/test_model.h"

namespace roundhouse {
namespace {

constexpr int kLayers = 8;
constexpr int kDevices = 4;
constexpr int64_t kRows = 1;
constexpr int64_t kRowTokens = 64;

// Forward 1 ms and backward 2 ms a layer.
CostModel Measured() {
  CostModel costs(std::vector<int64_t>(kLayers + 1, 1000));
  for (int step = 0; step < 3; ++step) {
    for (int layer = 0; layer <= kLayers; ++layer) {
      for (const LayerPass pass :
           {LayerPass::kForward, LayerPass::kRecompute, LayerPass::kBackward}) {
        const absl::Duration took =
            absl::Milliseconds(pass == LayerPass::kBackward ? 2 : 1);
        EXPECT_TRUE(costs.Observe(layer, pass, took).ok());
      }
    }
    costs.EndStep();
  }
  return costs;
}

JobPlanQuestion Question() {
  JobPlanQuestion question;
  PlanLimitsOptions& limits = question.limits;
  limits.model = {TestModel(false, kLayers), {}, DType::kF32};
  limits.buffers.micro_batches = 8;
  limits.buffers.rows = kRows;
  limits.buffers.row_tokens = kRowTokens;
  limits.buffers.hidden_size = limits.model.config.hidden_size;
  limits.buffers.layers = kLayers + 1;
  limits.buffers.boundary_tensors = 100;
  limits.buffers.contributions.slots_ahead = 3 * kDevices;
  limits.buffers.contributions.units =
      ContributedUnits(limits.model.config, {});
  limits.groups = 4;
  limits.device.bytes = 1 << 30;
  question.costs = MeasuredCosts(Measured(), limits.model, kRows * kRowTokens);
  question.machine.devices.resize(kDevices);
  question.host_bytes = 1 << 30;
  // Two blocks a stage, one device each.
  question.present = {
      {{0, 1}, {2, 3}, {4, 5}}, {{6, 8}, {4, 5}, {2, 3}, {0, 1}}, true};
  return question;
}

int Widest(const Plan& plan) {
  size_t widest = 1;
  for (const auto& parts : plan.split) widest = std::max(widest, parts.size());
  return static_cast<int>(widest);
}

TEST(MeasuredCostsTest, AreTheMeansOfTheBlocks) {
  const TrainedModel model{TestModel(false, kLayers), {}, DType::kF32};
  const ModelCosts costs = MeasuredCosts(Measured(), model, 64);
  EXPECT_EQ(costs.layers, kLayers);
  EXPECT_EQ(costs.forward_ns, 1'000'000);
  EXPECT_EQ(costs.backward_ns, 2'000'000);
  EXPECT_EQ(costs.head_forward_ns, 1'000'000);
  EXPECT_EQ(costs.layer_bytes, LayerBytes(model)[0]);
  EXPECT_EQ(costs.head_bytes, LayerBytes(model).back());
  // As if in bf16: the simulator sends fp32 sums.
  EXPECT_EQ(2 * costs.layer_gradient_bytes, LayerGradientBytes(model)[0]);
  EXPECT_GE(costs.BoundaryBytes(), 64 * 24 * 4);
  EXPECT_LT(costs.BoundaryBytes(), 64 * 24 * 4 + kHopBytesPerNs);
}

TEST(MeasuredCostsTest, HaveTheHostsWorkOnATrainedEmbedding) {
  AdapterConfig adapter;
  adapter.rank = 4;
  adapter.targets = 1;
  for (const bool tied : {false, true}) {
    TrainedModel model{TestModel(tied, kLayers), {}, DType::kF32};
    const ModelCosts full = MeasuredCosts(Measured(), model, 64);
    EXPECT_EQ(full.tied_head, tied);
    EXPECT_EQ(full.embedding_gradient_bytes,
              2 * model.config.vocab_size * model.config.hidden_size);
    model.adapter = adapter;
    const ModelCosts frozen = MeasuredCosts(Measured(), model, 64);
    EXPECT_FALSE(frozen.tied_head);
    EXPECT_EQ(frozen.embedding_gradient_bytes, 0);
  }
}

TEST(FindPlanTest, APipelineThatFillsAndDrainsIsReplaced) {
  const JobPlanQuestion question = Question();
  const auto found = FindPlan(question);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_TRUE(found->better())
      << found->step_ns << " after " << found->present_step_ns;
  EXPECT_GT(Widest(found->plan), 1) << ToString(found->plan);
  EXPECT_EQ(CheckPlan(found->plan, kLayers + 1), absl::OkStatus());
  EXPECT_EQ(
      CheckStepPlan(PlanOfRound(found->plan, 8, 4), kLayers + 1, 8, kDevices),
      absl::OkStatus());
  EXPECT_EQ(FindPlan(question)->plan, found->plan) << "deterministic";
  // What it found is not worth replacing.
  JobPlanQuestion again = question;
  again.present = found->plan;
  EXPECT_FALSE(FindPlan(again)->better());
}

// In the simulator too.
TEST(FindPlanTest, RoundedContributionsTakeHalfTheLink) {
  JobPlanQuestion question = Question();
  question.limits.model.dtype = DType::kBF16;
  question.costs = MeasuredCosts(Measured(), question.limits.model, 64);
  // Links on which gradients take longer than they are computed.
  question.machine.link_rate = 1e-3;
  const auto bitwise = FindPlan(question);
  ASSERT_TRUE(bitwise.ok()) << bitwise.status();
  question.limits.buffers.contributions.dtype = DType::kBF16;
  const auto fast = FindPlan(question);
  ASSERT_TRUE(fast.ok()) << fast.status();
  EXPECT_LT(fast->step_ns, bitwise->step_ns);
  EXPECT_LT(fast->present_step_ns, bitwise->present_step_ns);
}

// Where host memory is what a step waits for, 8 bytes a parameter show.
TEST(FindPlanTest, OnePassIsPlannedForAsOne) {
  JobPlanQuestion question = Question();
  question.machine.host_rate = 5e-3;
  question.updates = Updates::kAsReduced;
  const auto two = FindPlan(question);
  ASSERT_TRUE(two.ok()) << two.status();
  question.updates = Updates::kOnePass;
  const auto one = FindPlan(question);
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_LT(one->step_ns, two->step_ns);
  EXPECT_LT(one->present_step_ns, two->present_step_ns);
  question.rounds = 2;
  EXPECT_EQ(FindPlan(question).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(FindPlanTest, AJobOfOneGroupStaysOneDeviceWide) {
  JobPlanQuestion question = Question();
  question.limits.groups = 1;
  const auto found = FindPlan(question);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_TRUE(found->plan.split.empty()) << ToString(found->plan);
}

TEST(FindPlanTest, APlanKeepsToHostMemory) {
  JobPlanQuestion question = Question();
  const ContributionOptions& sums = question.limits.buffers.contributions;
  const auto free = FindPlan(question);
  ASSERT_TRUE(free.ok()) << free.status();
  question.host_bytes = ContributionBytes(free->plan, sums) - 1;
  const auto found = FindPlan(question);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_NE(found->plan, free->plan);
  EXPECT_LE(ContributionBytes(found->plan, sums), question.host_bytes);
  EXPECT_GE(found->step_ns, free->step_ns);
  question.host_bytes = 1;
  EXPECT_EQ(FindPlan(question).status().code(),
            absl::StatusCode::kResourceExhausted);
  // As many as there are already.
  question.sum_blocks = BlocksOf(free->plan, sums);
  const auto with_them = FindPlan(question);
  ASSERT_TRUE(with_them.ok()) << with_them.status();
  EXPECT_EQ(with_them->plan, free->plan);
}

TEST(FindPlanTest, APlanGoesOnWithWhatIsBetweenStages) {
  JobPlanQuestion question = Question();
  RoundBuffersOptions& buffers = question.limits.buffers;
  const auto free = FindPlan(question);
  ASSERT_TRUE(free.ok()) << free.status();
  question.sum_blocks = BlocksOf(free->plan, buffers.contributions);
  // Its slots are sent less far ahead.
  const int64_t least = LeastBoundaryTensors(free->plan, RowGradient::kRead);
  buffers.boundary_tensors = least;
  question.host_bytes = 0;
  const auto found = FindPlan(question);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_LE(LeastBoundaryTensors(found->plan, RowGradient::kRead), least);
  EXPECT_GE(found->step_ns, free->step_ns);
  buffers.boundary_tensors = 1;
  EXPECT_EQ(FindPlan(question).status().code(),
            absl::StatusCode::kResourceExhausted);
  // There is room for the rest.
  question.host_bytes = (least - 1) * BoundaryTensorBytes(buffers);
  const auto more = FindPlan(question);
  ASSERT_TRUE(more.ok()) << more.status();
  EXPECT_LE(LeastBoundaryTensors(more->plan, RowGradient::kRead), least);
}

TEST(FindPlanTest, APlanKeepsToDeviceMemory) {
  JobPlanQuestion question = Question();
  const auto free = FindPlan(question);
  ASSERT_TRUE(free.ok()) << free.status();
  const uint64_t bytes =
      PlanLimits(question.limits).LargestSlotBytes(free->plan) - 1;
  question.limits.device.bytes = bytes;
  const auto found = FindPlan(question);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_LE(PlanLimits(question.limits).LargestSlotBytes(found->plan), bytes);
}

// Fewer devices than the plan is wide: any plan that runs is better.
TEST(FindPlanTest, APlanForLostDevicesIsReplaced) {
  JobPlanQuestion question = Question();
  question.present = FindPlan(question)->plan;
  ASSERT_GT(Widest(question.present), 2);
  question.machine.devices.resize(2);
  const auto found = FindPlan(question);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->present_step_ns, std::numeric_limits<int64_t>::max());
  EXPECT_TRUE(found->better());
  EXPECT_LE(Widest(found->plan), 2);
}

TEST(PlanReviewTest, ComesOnceMeasuredAndAgainAfterDriftOrLoss) {
  PlanReview review;
  const std::vector<double> four(4, 1.0), three(3, 1.0);
  int64_t step = 1;
  for (; step < kFirstReviewedStep; ++step) {
    EXPECT_FALSE(review.Due(1000, four)) << step;
  }
  EXPECT_TRUE(review.Due(1000, four));
  for (int64_t i = 1; i < kStepsBetweenReviews; ++i) {
    EXPECT_FALSE(review.Due(2000, four)) << "too soon";
  }
  EXPECT_FALSE(review.Due(1090, four));
  EXPECT_TRUE(review.Due(1110, four));
  EXPECT_FALSE(review.Due(1110, four));
  EXPECT_TRUE(review.Due(1110, three)) << "a device was lost";
  EXPECT_FALSE(review.Due(1110, three));
}

TEST(PlanReviewTest, ComesAgainWhenADeviceBecomesSlow) {
  PlanReview review;
  for (int64_t step = 1; step < kFirstReviewedStep; ++step) {
    EXPECT_FALSE(review.Due(1000, {1, 1}));
  }
  EXPECT_TRUE(review.Due(1000, {1, 1}));
  for (int64_t i = 1; i < kStepsBetweenReviews; ++i) {
    EXPECT_FALSE(review.Due(1000, {1, 0.5})) << "too soon";
  }
  EXPECT_FALSE(review.Due(1000, {1, 1}));
  EXPECT_TRUE(review.Due(1000, {1, 0.5}));
  EXPECT_FALSE(review.Due(1000, {1, 0.5}));
}

}  // namespace
}  // namespace roundhouse
