#include "tests/day/whole_jobs.h"

#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace roundhouse::day {
namespace {

constexpr absl::Duration kStep = absl::Milliseconds(5'600);  // alone, small

// A small job asks for one device up to 7.5 minutes of the pool, for two up to
// 15, for four up to 30, else for all.
DayJob Small(absl::Duration submitted, absl::Duration alone) {
  return {.submitted = submitted,
          .model = DayModel::kSmall,
          .steps = alone / kStep};
}

TeamDay DayOf(std::vector<DayJob> jobs) {
  return {
      .jobs = std::move(jobs),
      .loan = {.device = 3, .from = absl::Hours(20), .until = absl::Hours(21)}};
}

absl::Duration Minute(double minute) { return absl::Minutes(minute); }

// On the devices that it asked for.
absl::Duration LengthOf(const DayJob& job) {
  return DeviceTimeOf(job) / DevicesAskedOf(job);
}

TEST(WholeJobsTest, NobodyOvertakes) {
  const DayJob two = Small(Minute(0), Minute(14));
  const DayJob all = Small(Minute(1), Minute(60));
  const DayJob one = Small(Minute(2), Minute(7));
  const DayRun run =
      RunWholeJobs(DayOf({two, all, one}), WholeJobRule::kInOrder);
  EXPECT_EQ(run.jobs[0].began, Minute(0));
  EXPECT_EQ(run.jobs[0].ended, LengthOf(two));
  EXPECT_EQ(run.jobs[1].began, run.jobs[0].ended);
  EXPECT_EQ(run.jobs[2].began, run.jobs[1].ended);
  EXPECT_EQ(run.jobs[2].ended, *run.jobs[2].began + LengthOf(one));
  EXPECT_EQ(run.jobs[2].device_time, DeviceTimeOf(one));
}

TEST(WholeJobsTest, OthersGoAheadWhereTheFirstOneWaitsNoLonger) {
  const DayJob two = Small(Minute(0), Minute(14));  // for 56 minutes
  const DayJob all = Small(Minute(1), Minute(60));
  const DayJob fits = Small(Minute(2), Minute(6));    // for 48 minutes
  const DayJob late = Small(Minute(3), Minute(7.4));  // for 59 minutes
  ASSERT_GT(Minute(3) + LengthOf(late), LengthOf(two));
  const DayRun run =
      RunWholeJobs(DayOf({two, all, fits, late}), WholeJobRule::kBackfill);
  EXPECT_EQ(run.jobs[1].began, LengthOf(two));
  EXPECT_EQ(run.jobs[2].began, Minute(2));
  EXPECT_EQ(run.jobs[3].began, run.jobs[1].ended);
}

// A device that the first one will not need may be taken for longer.
TEST(WholeJobsTest, WhatTheFirstOneLeavesMayBeTakenForLonger) {
  const DayJob four = Small(Minute(0), Minute(20));
  const DayJob two = Small(Minute(0), Minute(14));
  const DayJob next = Small(Minute(1), Minute(29));  // for four
  const DayJob one = Small(Minute(2), Minute(7.4));
  const DayJob other = Small(Minute(2), Minute(14.9));
  const DayRun run = RunWholeJobs(DayOf({four, two, next, one, other}),
                                  WholeJobRule::kBackfill);
  ASSERT_LT(LengthOf(four), LengthOf(two));
  // Six are free then, and four are needed.
  EXPECT_EQ(run.jobs[2].began, LengthOf(four));
  EXPECT_EQ(run.jobs[3].began, Minute(2));
  // One is left at once, and two are asked for.
  EXPECT_EQ(run.jobs[4].began, LengthOf(two));
}

TEST(WholeJobsTest, UrgentJobsGoBeforeThoseThatWait) {
  const DayJob first = Small(Minute(0), Minute(60));
  const DayJob second = Small(Minute(1), Minute(60));
  DayJob urgent = Small(Minute(2), Minute(60));
  urgent.urgent = true;
  const DayRun run =
      RunWholeJobs(DayOf({first, second, urgent}), WholeJobRule::kInOrder);
  EXPECT_EQ(run.jobs[2].began, run.jobs[0].ended);
  EXPECT_EQ(run.jobs[1].began, run.jobs[2].ended);
}

TEST(WholeJobsTest, GivenUpJobsLeaveTheirDevices) {
  DayJob first = Small(Minute(0), Minute(60));
  first.cancelled = Minute(10);
  DayJob second = Small(Minute(1), Minute(60));
  second.cancelled = Minute(5);
  const DayJob third = Small(Minute(2), Minute(60));
  const DayRun run =
      RunWholeJobs(DayOf({first, second, third}), WholeJobRule::kInOrder);
  EXPECT_TRUE(run.jobs[0].cancelled);
  EXPECT_EQ(run.jobs[0].ended, Minute(10));
  EXPECT_EQ(run.jobs[0].device_time, 8 * Minute(10));
  EXPECT_TRUE(run.jobs[1].cancelled);
  EXPECT_EQ(run.jobs[1].ended, Minute(5));
  EXPECT_FALSE(run.jobs[1].began.has_value());
  EXPECT_EQ(run.jobs[2].began, Minute(10));
  EXPECT_FALSE(run.jobs[2].cancelled);
}

// It takes the first device that is free, and jobs the seven that are left.
TEST(WholeJobsTest, ADeviceIsLent) {
  const DayJob before = Small(Minute(0), Minute(60));
  const DayJob during = Small(Minute(30), Minute(60));
  const DayJob after = Small(Minute(40), Minute(60));
  TeamDay day = DayOf({before, during, after});
  day.loan = {.device = 3, .from = Minute(20), .until = Minute(100)};
  const DayRun run = RunWholeJobs(day, WholeJobRule::kInOrder);
  EXPECT_EQ(run.lent, LengthOf(before));
  EXPECT_EQ(run.jobs[1].began, LengthOf(before));
  EXPECT_EQ(run.jobs[1].ended, *run.jobs[1].began + DeviceTimeOf(during) / 7);
  ASSERT_GT(*run.jobs[1].ended, Minute(100));
  EXPECT_EQ(run.jobs[2].ended, *run.jobs[1].ended + LengthOf(after));
}

TEST(WholeJobsTest, JobsMayHaveThePoolOneAfterTheOther) {
  const DayJob first = Small(Minute(0), Minute(5));
  const DayJob second = Small(Minute(1), Minute(5));
  const DayRun run =
      RunWholeJobs(DayOf({first, second}), WholeJobRule::kWholePool);
  EXPECT_EQ(run.jobs[0].ended, AloneTimeOf(first));
  EXPECT_EQ(run.jobs[1].ended, 2 * AloneTimeOf(first));
}

}  // namespace
}  // namespace roundhouse::day
