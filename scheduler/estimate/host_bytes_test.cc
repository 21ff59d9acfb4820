#include "scheduler/estimate/host_bytes.h"

#include "gtest/gtest.h"
#include "scheduler/estimate/test_shapes.h"

namespace roundhouse {
namespace {

// ARCHITECTURE.md: 22 bytes a parameter that trains, 2 a frozen one.
TEST(HostBytesTest, FullFineTuningOf32B) {
  const TrainingSetup setup = TestSetup("qwen3-32b");
  const HostMemory bytes = HostBytesOf(setup, 10, 16);
  EXPECT_EQ(setup.shape.parameter_count(), 32'762'123'264);
  EXPECT_EQ(bytes.state, 22 * int64_t{32'762'123'264});
  EXPECT_EQ(bytes.base, 0);
  // Two sets of 16 micro-batches of 10 tensors.
  EXPECT_EQ(bytes.boundaries, int64_t{2} * 16 * 10 * 2 * 8192 * 5120);
  EXPECT_EQ(bytes.total(), bytes.state + bytes.boundaries);
}

TEST(HostBytesTest, AdaptersOf235B) {
  const TrainingSetup setup = TestLora("qwen3-235b", 8);
  const HostMemory bytes = HostBytesOf(setup, 0, 16);
  EXPECT_EQ(bytes.base, 2 * setup.shape.parameter_count());
  EXPECT_NEAR(1e-9 * static_cast<double>(bytes.base), 470.2, 0.1);
  EXPECT_EQ(bytes.state, 24 * TrainedParameters(setup));
}

TEST(HostBytesTest, ATiedMatrixIsHeldOnce) {
  const TrainingSetup setup = TestSetup("qwen3-1.7b");
  EXPECT_NEAR(1e-9 * static_cast<double>(HostBytesOf(setup, 0, 1).state),
              22 * 1.7206, 0.01);
}

TEST(HostBytesTest, TensorsBetweenStages) {
  Plan plan;
  plan.fused = true;
  plan.forward = {{0, 1}, {2, 3}};
  plan.backward = {{4, 6}, {1, 3}, {0, 0}};
  // Inputs of 0, 1, 2 and 4; gradients of 4, 1 and 0.
  EXPECT_EQ(BoundaryTensors(plan, true), 7);
  EXPECT_EQ(BoundaryTensors(plan, false), 6);
  Plan single;
  for (int l = 0; l < 64; ++l) single.forward.push_back({l, l});
  for (int l = 64; l >= 0; --l) single.backward.push_back({l, l});
  single.fused = true;
  EXPECT_EQ(MostBoundaryTensors(TestSetup("qwen3-32b")),
            BoundaryTensors(single, true));
  EXPECT_EQ(MostBoundaryTensors(TestLora("qwen3-32b", 8)),
            BoundaryTensors(single, false));
}

Interval Piece(WorkKind kind, int layer, int64_t start, int64_t end,
               int64_t bytes) {
  Interval interval;
  interval.resource.type =
      kind == WorkKind::kReduce ? ResourceType::kHost : ResourceType::kD2h;
  interval.kind = kind;
  interval.layer_begin = layer;
  interval.layer_end = layer + 1;
  interval.start_ns = start;
  interval.end_ns = end;
  interval.bytes = bytes;
  return interval;
}

TEST(HostBytesTest, ContributionsAreHeldUntilTheyAreReduced) {
  Schedule schedule;
  schedule.device_count = 1;
  EXPECT_EQ(PeakContributionBytes(schedule), 0);
  schedule.intervals = {Piece(WorkKind::kGradients, 1, 0, 5, 100),
                        Piece(WorkKind::kGradients, 1, 5, 9, 100),
                        Piece(WorkKind::kReduce, 1, 9, 20, 400),
                        Piece(WorkKind::kGradients, 0, 10, 20, 150),
                        Piece(WorkKind::kReduce, 0, 21, 25, 300),
                        Piece(WorkKind::kActivations, 0, 0, 30, 9999)};
  EXPECT_EQ(PeakContributionBytes(schedule), 350);
  schedule.intervals[3].start_ns = 20;
  EXPECT_EQ(PeakContributionBytes(schedule), 200);
}

}  // namespace
}  // namespace roundhouse
