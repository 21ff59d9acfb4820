#include "scheduler/estimate/update_delay.h"

#include "gtest/gtest.h"
#include "scheduler/simulate/host_work.h"

namespace roundhouse {
namespace {

Interval Of(ResourceType type, WorkKind kind, int layer, int64_t start_ns,
            int64_t end_ns) {
  Interval interval;
  interval.resource.type = type;
  interval.kind = kind;
  interval.layer_begin = layer;
  interval.layer_end = layer + 1;
  interval.start_ns = start_ns;
  interval.end_ns = end_ns;
  return interval;
}

// Two layers, of which the second goes up at 10, and an input at 2.
Schedule Step() {
  Schedule step;
  step.device_count = 1;
  step.intervals = {Of(ResourceType::kH2d, WorkKind::kWeights, 0, 0, 5),
                    Of(ResourceType::kH2d, WorkKind::kWeights, 1, 10, 15),
                    Of(ResourceType::kH2d, WorkKind::kWeights, 1, 40, 45),
                    Of(ResourceType::kH2d, WorkKind::kActivations, 0, 2, 3),
                    Of(ResourceType::kCompute, WorkKind::kBackward, 0, 50, 90),
                    Of(ResourceType::kD2h, WorkKind::kGradients, 0, 90, 100)};
  return step;
}

int64_t StepNs(const Schedule& step) {
  return step.MakespanNs() + UpdateDelayNs(step);
}

TEST(UpdateDelayTest, WhatTheNextStepNeedsLateMayEndUnderIt) {
  Schedule step = Step();
  EXPECT_EQ(StepNs(step), 100);
  step.intervals.push_back(
      Of(ResourceType::kHost, WorkKind::kReduce, 0, 100, 105));
  EXPECT_EQ(StepNs(step), 100);  // an update follows
  step.intervals.push_back(
      Of(ResourceType::kHost, WorkKind::kOptimizer, 0, 105, 110));
  EXPECT_EQ(StepNs(step), 110);
  step.intervals.push_back(
      Of(ResourceType::kHost, WorkKind::kOptimizer, 1, 110, 120));
  EXPECT_EQ(StepNs(step), 110);
  step.intervals.back().end_ns = 125;
  EXPECT_EQ(StepNs(step), 115);
  EXPECT_EQ(UpdateDelayNs(step), -10);
}

TEST(UpdateDelayTest, RowsWaitForTheEmbedding) {
  Schedule step = Step();
  step.intervals.push_back(
      Of(ResourceType::kHost, WorkKind::kOptimizer, kEmbedding, 100, 110));
  EXPECT_EQ(StepNs(step), 108);
}

}  // namespace
}  // namespace roundhouse
