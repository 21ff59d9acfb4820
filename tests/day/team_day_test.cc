#include "tests/day/team_day.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace roundhouse::day {
namespace {

auto KeyOf(const DayJob& job) {
  return std::tuple(job.submitted, job.user, job.model, job.steps, job.urgent,
                    job.cancelled);
}

bool SameDays(const TeamDay& a, const TeamDay& b) {
  return std::equal(
      a.jobs.begin(), a.jobs.end(), b.jobs.begin(), b.jobs.end(),
      [](const DayJob& x, const DayJob& y) { return KeyOf(x) == KeyOf(y); });
}

TEST(TeamDayTest, ASeedIsOneDay) {
  const TeamDay day = MakeTeamDay({.seed = 5});
  EXPECT_TRUE(SameDays(day, MakeTeamDay({.seed = 5})));
  EXPECT_FALSE(SameDays(day, MakeTeamDay({.seed = 6})));
}

// What its header says of a day, over a hundred of them.
TEST(TeamDayTest, DaysAreOfTheirKind) {
  absl::Duration all, in_long;
  int jobs = 0, are_short = 0, at_night = 0, at_peaks = 0, cancelled = 0;
  int of_first = 0, of_last = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const TeamDay day = MakeTeamDay({.seed = seed});
    ASSERT_EQ(day.jobs.size(), 75u);
    absl::Duration load;
    std::set<int> users;
    for (const DayJob& job : day.jobs) {
      const absl::Duration alone = AloneTimeOf(job);
      const double hour = absl::ToDoubleHours(job.submitted);
      users.insert(job.user);
      load += alone;
      if (alone >= kLongJob) in_long += alone;
      if (job.urgent) {
        EXPECT_TRUE(hour >= 12 && hour < 13) << hour;
        continue;
      }
      ++jobs;
      are_short += alone < kShortJob ? 1 : 0;
      at_night += hour < 6 ? 1 : 0;
      at_peaks += (hour >= 9 && hour < 11) || (hour >= 14 && hour < 16) ? 1 : 0;
      cancelled += job.cancelled < absl::InfiniteDuration() ? 1 : 0;
      of_first += job.user == 0 ? 1 : 0;
      of_last += job.user == kUsers - 1 ? 1 : 0;
    }
    EXPECT_GT(load, absl::Hours(12)) << "seed " << seed;
    EXPECT_LT(load, absl::Hours(15)) << "seed " << seed;
    EXPECT_GE(users.size(), 8u) << "seed " << seed;
    all += load;
  }
  EXPECT_NEAR(are_short, 0.76 * jobs, 0.03 * jobs);
  EXPECT_GT(in_long, 0.3 * all);
  EXPECT_LT(at_night, 0.08 * jobs);
  EXPECT_GT(at_peaks, 0.3 * jobs);
  EXPECT_NEAR(cancelled, jobs / 8.0, 0.02 * jobs);
  EXPECT_GT(of_first, 4 * of_last);
}

TEST(TeamDayTest, JobsAskForDevicesByLengthAndModel) {
  const auto job = [](DayModel model, absl::Duration alone) {
    const DayJob step{.model = model, .steps = 1};
    return DayJob{.model = model, .steps = alone / AloneTimeOf(step)};
  };
  const auto asked = [&](DayModel model, absl::Duration alone) {
    return DevicesAskedOf(job(model, alone));
  };
  EXPECT_EQ(asked(DayModel::kSmall, absl::Minutes(7)), 1);
  EXPECT_EQ(asked(DayModel::kSmall, absl::Minutes(8)), 2);
  EXPECT_EQ(asked(DayModel::kSmall, absl::Minutes(29)), 4);
  EXPECT_EQ(asked(DayModel::kSmall, absl::Minutes(31)), 8);
  EXPECT_EQ(asked(DayModel::kSmall, absl::Hours(3)), 8);
  EXPECT_EQ(asked(DayModel::kMiddle, absl::Minutes(1)), 2);
  EXPECT_EQ(asked(DayModel::kLarge, absl::Minutes(1)), 4);
}

// Times of the day become shorter, and lengths are what is asked for.
TEST(TeamDayTest, ADayMayBeShort) {
  const TeamDay day = MakeTeamDay({.seed = 1,
                                   .jobs = 20,
                                   .urgent_jobs = 2,
                                   .day = absl::Hours(2),
                                   .median = absl::Minutes(1),
                                   .longest = absl::Minutes(10)});
  ASSERT_EQ(day.jobs.size(), 22u);
  for (const DayJob& job : day.jobs) {
    EXPECT_LT(job.submitted, absl::Hours(2));
    EXPECT_LE(AloneTimeOf(job), absl::Minutes(10.5));
  }
  EXPECT_EQ(day.loan.from, absl::Minutes(70));
  EXPECT_EQ(day.loan.until, absl::Minutes(85));
}

}  // namespace
}  // namespace roundhouse::day
