#include "scheduler/estimate/bubble_causes.h"

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

Interval On(ResourceType type, int index, WorkKind kind, int64_t start,
            int64_t end) {
  Interval interval;
  interval.resource = {type, index};
  interval.kind = kind;
  interval.start_ns = start;
  interval.end_ns = end;
  return interval;
}

Interval Compute(int device, int64_t start, int64_t end) {
  return On(ResourceType::kCompute, device, WorkKind::kForward, start, end);
}
Interval Up(int device, WorkKind kind, int64_t start, int64_t end) {
  return On(ResourceType::kH2d, device, kind, start, end);
}
Interval Down(int device, WorkKind kind, int64_t start, int64_t end) {
  return On(ResourceType::kD2h, device, kind, start, end);
}

// Each gap is the last arrival's before what runs next.
TEST(BubbleCausesTest, AGapIsTheLastArrivals) {
  Schedule schedule;
  schedule.device_count = 2;
  schedule.intervals = {Up(0, WorkKind::kActivations, 0, 2),
                        Up(0, WorkKind::kWeights, 2, 10),
                        Compute(0, 10, 20),
                        Compute(0, 20, 30),
                        Up(0, WorkKind::kWeights, 10, 25),
                        Up(0, WorkKind::kActivations, 33, 36),
                        Compute(0, 36, 40),
                        Down(0, WorkKind::kGradients, 30, 47),
                        Compute(0, 47, 50),
                        Up(1, WorkKind::kWeights, 0, 8),
                        Up(1, WorkKind::kActivations, 20, 24),
                        Compute(1, 24, 60),
                        Down(1, WorkKind::kGradients, 60, 70),
                        On(ResourceType::kHost, 0, WorkKind::kReduce, 70, 75)};
  const std::vector<DeviceStepTime> times = ExplainBubbles(schedule);
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(times[0].compute_ns, 27);
  EXPECT_EQ(times[0].bubble, (BubbleCauses{.fill_and_drain_ns = 6 + 10,
                                           .weights_ns = 10,
                                           .gradients_ns = 7,
                                           .end_of_step_ns = 15}));
  EXPECT_EQ(times[1].compute_ns, 36);
  EXPECT_EQ(times[1].bubble, (BubbleCauses{.fill_and_drain_ns = 24,
                                           .weights_ns = 0,
                                           .gradients_ns = 0,
                                           .end_of_step_ns = 15}));
  for (const DeviceStepTime& time : times) {
    EXPECT_EQ(time.compute_ns + time.bubble.total_ns(), schedule.MakespanNs());
  }
}

// An upload that ends with a download is what compute starts for.
TEST(BubbleCausesTest, AnUploadGoesBeforeADownload) {
  Schedule schedule;
  schedule.device_count = 1;
  for (const bool upload_first : {true, false}) {
    schedule.intervals = {Down(0, WorkKind::kGradients, 0, 9),
                          Up(0, WorkKind::kWeights, 0, 9), Compute(0, 9, 10)};
    if (upload_first) {
      std::swap(schedule.intervals[0], schedule.intervals[1]);
    }
    EXPECT_EQ(ExplainBubbles(schedule)[0].bubble.weights_ns, 9);
  }
}

TEST(BubbleCausesTest, AnIdleDeviceWaitsForThePipeline) {
  Schedule schedule;
  schedule.device_count = 2;
  schedule.intervals = {Compute(0, 0, 10)};
  EXPECT_EQ(ExplainBubbles(schedule)[1].bubble.fill_and_drain_ns, 10);
  EXPECT_TRUE(ExplainBubbles(Schedule()).empty());
}

TEST(BubbleCausesTest, Sums) {
  BubbleCauses sum{1, 2, 3, 4};
  sum.Add({10, 20, 30, 40});
  EXPECT_EQ(sum, (BubbleCauses{11, 22, 33, 44}));
  EXPECT_EQ(sum.total_ns(), 110);
}

}  // namespace
}  // namespace roundhouse
