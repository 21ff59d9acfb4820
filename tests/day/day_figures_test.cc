#include "tests/day/day_figures.h"

#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace roundhouse::day {
namespace {

absl::Duration Minute(double minute) { return absl::Minutes(minute); }

// Users 0 and 3 are of one project, user 1 of another.
class DayFiguresTest : public testing::Test {
 protected:
  DayFiguresTest() {
    day_.loan = {.device = 3, .from = Minute(600), .until = Minute(700)};
  }

  // Its steps take 5.6 s alone.
  void Add(int user, double submitted, double began, double ended,
           absl::Duration device_time) {
    day_.jobs.push_back(
        {.submitted = Minute(submitted), .user = user, .steps = 100});
    run_.jobs.push_back({.began = Minute(began),
                         .ended = Minute(ended),
                         .device_time = device_time});
    run_.services.push_back({user, Minute(began), Minute(ended)});
  }

  TeamDay day_;
  DayRun run_;
};

TEST_F(DayFiguresTest, TimesAreOfJobsThatEnd) {
  Add(0, 0, 2, 14, Minute(1));
  Add(1, 0, 4, 28, Minute(1));
  day_.jobs.back().urgent = true;
  Add(3, 0, 100, 101, Minute(1));
  run_.jobs.back().cancelled = true;
  const DayFigures figures = FiguresOf(day_, run_);
  EXPECT_DOUBLE_EQ(figures.wait_mean, 3);
  EXPECT_DOUBLE_EQ(figures.wait_p95, 3.9);
  EXPECT_DOUBLE_EQ(figures.short_wait_mean, 3);
  EXPECT_DOUBLE_EQ(figures.urgent_wait_p50, 240);
  EXPECT_DOUBLE_EQ(figures.stay_mean, 21);
  // 560 s alone.
  EXPECT_DOUBLE_EQ(figures.slowdown_mean, (1.5 + 3) / 2);
  EXPECT_DOUBLE_EQ(figures.long_stay_mean, 0);
}

// A job of a second counts as if it took ten; none is faster than alone.
TEST_F(DayFiguresTest, SlowdownIsBounded) {
  Add(0, 0, 0, 1, Minute(1));
  day_.jobs.back().steps = 1;
  EXPECT_DOUBLE_EQ(FiguresOf(day_, run_).slowdown_mean, 6);
  run_.jobs.back().ended = absl::Seconds(2);
  EXPECT_DOUBLE_EQ(FiguresOf(day_, run_).slowdown_mean, 1);
}

TEST_F(DayFiguresTest, SharesAreOfProjectsThenOfUsers) {
  // A half of ten minutes of eight devices is user 1's.
  Add(0, 0, 0, 10, Minute(20));
  Add(3, 0, 0, 10, Minute(20));
  Add(1, 0, 0, 10, Minute(40));
  DayFigures figures = FiguresOf(day_, run_);
  EXPECT_DOUBLE_EQ(figures.jain, 1);
  EXPECT_DOUBLE_EQ(figures.least_share, 1);
  EXPECT_DOUBLE_EQ(figures.use, 100);
  // x is 1, 0 and 1.
  run_.jobs[1].device_time = absl::ZeroDuration();
  figures = FiguresOf(day_, run_);
  EXPECT_DOUBLE_EQ(figures.jain, 2.0 / 3);
  EXPECT_DOUBLE_EQ(figures.least_share, 0);
  EXPECT_DOUBLE_EQ(figures.use, 75);
}

// Who has jobs alone has all that is there, less the lent device; a time
// without jobs is nobody's.
TEST_F(DayFiguresTest, SharesAreOfWhoHasJobsThen) {
  day_.loan = {.device = 3, .from = Minute(20), .until = Minute(30)};
  Add(0, 0, 0, 10, Minute(80));
  Add(1, 20, 20, 30, Minute(35));
  run_.lent = Minute(20);
  DayFigures figures = FiguresOf(day_, run_);
  // x is 1 and 0.5.
  EXPECT_DOUBLE_EQ(figures.jain, 2.25 / (2 * 1.25));
  EXPECT_DOUBLE_EQ(figures.use, 100 * 115.0 / 150);
  EXPECT_DOUBLE_EQ(figures.loan_wait, 0);
  // The borrower had it for half of the time, or never.
  run_.lent = Minute(25);
  figures = FiguresOf(day_, run_);
  EXPECT_DOUBLE_EQ(figures.use, 100 * 115.0 / 155);
  EXPECT_DOUBLE_EQ(figures.loan_wait, 300);
  run_.lent.reset();
  figures = FiguresOf(day_, run_);
  EXPECT_DOUBLE_EQ(figures.use, 100 * 115.0 / 160);
  EXPECT_DOUBLE_EQ(figures.loan_wait, 600);
}

// Another job of his may have slots.
TEST_F(DayFiguresTest, AGapIsAUsersWithJobsAndWithoutSlots) {
  Add(0, 0, 10, 20, Minute(1));
  Add(0, 0, 25, 40, Minute(1));
  Add(1, 15, 18, 19, Minute(1));
  EXPECT_DOUBLE_EQ(FiguresOf(day_, run_).longest_gap, 10);
  run_.services.push_back({0, Minute(3), Minute(10)});
  EXPECT_DOUBLE_EQ(FiguresOf(day_, run_).longest_gap, 5);
}

}  // namespace
}  // namespace roundhouse::day
