// What always holds of a day under the daemon, whatever is in it.
// ROUNDHOUSE_COUNT says how many days, ROUNDHOUSE_SEED which is the first.

#include "tests/day/server_day.h"

#include <cstdint>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/number_from_environment.h"
#include "gtest/gtest.h"
#include "tests/sim/sim_server.h"

namespace roundhouse::day {
namespace {

ServerDay RunDay(const TeamDay& day, ServerDayOptions options) {
  options.root = sim::NewRoot();
  ServerDay ran = RunServerDay(day, options);
  std::filesystem::remove_all(options.root);
  return ran;
}

TeamDay ShortDay(uint64_t seed) {
  return MakeTeamDay({.seed = seed,
                      .jobs = 24,
                      .urgent_jobs = 2,
                      .day = absl::Hours(2),
                      .median = absl::Minutes(1),
                      .longest = absl::Minutes(10)});
}

// As much as all jobs of a short day need at once.
constexpr uint64_t kPlenty = uint64_t{1} << 30;
// A large job's and a middle one's.
constexpr uint64_t kLittle = uint64_t{64} << 20;

void CheckEnds(const TeamDay& day, const ServerDay& ran) {
  for (size_t i = 0; i < day.jobs.size(); ++i) {
    const JobRun& job = ran.run.jobs[i];
    if (job.cancelled) {
      EXPECT_LT(day.jobs[i].cancelled, absl::InfiniteDuration()) << i;
      EXPECT_LE(job.device_time, DeviceTimeOf(day.jobs[i])) << i;
    } else {
      // All its steps, and no slot twice but of the step in which it was saved.
      const absl::Duration all = DeviceTimeOf(day.jobs[i]);
      EXPECT_GE(job.device_time, all) << i;
      EXPECT_LE(job.device_time, all + job.saves * (all / day.jobs[i].steps))
          << i;
    }
  }
}

// In which one user or another may have to wait for all urgent ones.
absl::Duration UrgentTimeOf(const TeamDay& day) {
  absl::Duration sum;
  for (const DayJob& job : day.jobs) {
    if (job.urgent) sum += AloneTimeOf(job);
  }
  return sum;
}

const absl::Duration kLongestSlot = LongestSlot(DayModel::kLarge);
// From LOADING to RUNNING, and for a turn among all users.
constexpr absl::Duration kMostGap = absl::Minutes(1);
// The rest is what jobs wait for while they are loaded, and ends of steps.
constexpr double kLeastUse = 90;

// Its slots go before all others: at most it waits for what each device
// computes, once in each step, and for other urgent jobs.
void CheckUrgent(const TeamDay& day, const ServerDay& ran,
                 const UrgentStart& start) {
  const absl::Duration end = *ran.run.jobs[start.job].ended;
  absl::Duration all = day.jobs[start.job].steps * kLongestSlot;
  int others = -1;  // without this one
  for (const UrgentStart& other : ran.urgent) {
    const absl::Duration its_end = *ran.run.jobs[other.job].ended;
    if (other.loaded > end || its_end < start.loaded) continue;
    all += AloneTimeOf(day.jobs[other.job]);
    ++others;
  }
  EXPECT_LE(start.waited,
            (1 + others) * start.longest_slot + absl::Milliseconds(15));
  EXPECT_LE(end - start.loaded, all);
}

void CheckPromises(const TeamDay& day, const ServerDay& ran) {
  CheckEnds(day, ran);
  EXPECT_EQ(ran.urgent.size(), 2u);
  for (const UrgentStart& start : ran.urgent) CheckUrgent(day, ran, start);
  // What the device computes, and its worker's end.
  const absl::Duration lent = kLongestSlot + absl::Milliseconds(1100);
  EXPECT_LE(FiguresOf(day, ran.run).loan_wait, absl::ToDoubleSeconds(lent));
}

// With host memory for all, and with so little that jobs wait for it.
TEST(ServerDayTest, PromisesHold) {
  const uint64_t first = NumberFromEnvironment("ROUNDHOUSE_SEED", 1);
  const uint64_t count = NumberFromEnvironment("ROUNDHOUSE_COUNT", 2);
  for (uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE(absl::StrCat("ROUNDHOUSE_SEED=", seed));
    const TeamDay day = ShortDay(seed);
    const ServerDay ran = RunDay(day, {.host_bytes = kPlenty});
    CheckPromises(day, ran);
    const DayFigures figures = FiguresOf(day, ran.run);
    EXPECT_GE(figures.use, kLeastUse);
    EXPECT_LE(figures.longest_gap,
              absl::ToDoubleMinutes(UrgentTimeOf(day) + kMostGap));
    CheckPromises(day, RunDay(day, {.host_bytes = kLittle}));
  }
}

TEST(ServerDayTest, ADayIsTheSameOneEachTime) {
  const TeamDay day = ShortDay(4);
  const ServerDay first = RunDay(day, {});
  const ServerDay again = RunDay(day, {});
  CheckEnds(day, first);
  EXPECT_EQ(first.slots, again.slots);
  for (size_t i = 0; i < day.jobs.size(); ++i) {
    EXPECT_EQ(first.run.jobs[i].began, again.run.jobs[i].began) << i;
    EXPECT_EQ(first.run.jobs[i].ended, again.run.jobs[i].ended) << i;
  }
}

TEST(ServerDayTest, TwoJobsRunAtATime) {
  const TeamDay day = ShortDay(5);
  const ServerDay ran =
      RunDay(day, {.rule = ServerRule::kTwoJobs, .host_bytes = kPlenty});
  CheckEnds(day, ran);
  // In the order in which they came, and no more than two of them.
  for (size_t i = 0; i < day.jobs.size(); ++i) {
    const JobRun& job = ran.run.jobs[i];
    if (!job.began.has_value()) continue;
    int beside = 0;
    for (size_t j = 0; j < day.jobs.size(); ++j) {
      const JobRun& other = ran.run.jobs[j];
      if (i == j || !other.began.has_value()) continue;
      if (*other.began <= *job.began && *other.ended > *job.began) ++beside;
      if (j > i) continue;
      EXPECT_LE(*other.began, *job.began + absl::Minutes(1)) << j;
    }
    EXPECT_LE(beside, 1) << i;
  }
}

}  // namespace
}  // namespace roundhouse::day
