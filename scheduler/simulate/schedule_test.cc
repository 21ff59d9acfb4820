#include "scheduler/simulate/schedule.h"

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

Interval Compute(int device, int64_t start_ns, int64_t end_ns) {
  Interval interval;
  interval.resource = {ResourceType::kCompute, device};
  interval.layer_end = 2;
  interval.micro_batch = 3;
  interval.start_ns = start_ns;
  interval.end_ns = end_ns;
  return interval;
}

TEST(ScheduleTest, BubbleIsTheShareWithoutCompute) {
  Schedule schedule;
  EXPECT_EQ(schedule.BubblePercent(), 0);
  schedule.device_count = 2;
  schedule.intervals = {Compute(0, 0, 10), Compute(1, 5, 10)};
  // An interval of no length ends nothing.
  schedule.intervals.push_back(Compute(0, 50, 50));
  EXPECT_EQ(schedule.MakespanNs(), 10);
  EXPECT_EQ(schedule.BusyNs(), 15);
  EXPECT_DOUBLE_EQ(schedule.BubblePercent(), 25);
  // A transfer counts for the makespan only.
  Interval weights = Compute(0, 10, 20);
  weights.resource.type = ResourceType::kH2d;
  weights.kind = WorkKind::kWeights;
  schedule.intervals.push_back(weights);
  EXPECT_EQ(schedule.MakespanNs(), 20);
  EXPECT_EQ(schedule.BusyNs(), 15);
}

TEST(ScheduleTest, CsvIsOrderedAndExact) {
  Schedule schedule;
  schedule.device_count = 2;
  schedule.intervals = {Compute(1, 7, 9), Compute(0, 2'000'003, 12'345'678)};
  Interval weights;
  weights.resource = {ResourceType::kH2d, 0};
  weights.kind = WorkKind::kWeights;
  weights.direction = PassDirection::kBackward;
  weights.layer_begin = 4;
  weights.layer_end = 5;
  weights.end_ns = 1'000'000;
  weights.bytes = 21'000'000;
  schedule.intervals.push_back(weights);
  Interval reduce = weights;
  reduce.resource = {ResourceType::kHost,
                     static_cast<int>(HostThreads::kReduce)};
  reduce.kind = WorkKind::kReduce;
  reduce.job = 1;
  reduce.step = 2;
  schedule.intervals.push_back(reduce);
  EXPECT_EQ(ScheduleCsv(schedule),
            "resource,kind,job,step,direction,layer_begin,layer_end,"
            "micro_batch,start_ms,end_ms,bytes\n"
            "compute:0,forward,0,0,forward,0,2,3,2.000003,12.345678,0\n"
            "compute:1,forward,0,0,forward,0,2,3,0.000007,0.000009,0\n"
            "h2d:0,weights,0,0,backward,4,5,-1,0.000000,1.000000,21000000\n"
            "host:reduce,reduce,1,2,backward,4,5,-1,0.000000,1.000000,"
            "21000000\n");
}

}  // namespace
}  // namespace roundhouse
