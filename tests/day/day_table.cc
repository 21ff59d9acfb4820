// day_table: days of a team in virtual time, under the daemon and under other
// ways to share devices.
//
//   bazel run -c opt //tests/day:day_table -- --days=20
//
// docs/benchmarks.md has the table; day_figures.h says what each figure is.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/flags.h"
#include "base/log.h"
#include "base/status.h"
#include "tests/day/day_figures.h"
#include "tests/day/server_day.h"
#include "tests/day/team_day.h"
#include "tests/day/whole_jobs.h"

namespace roundhouse::day {
namespace {

struct Row {
  const char* name;
  double DayFigures::*figure;
  int digits;
};

constexpr Row kRows[] = {
    {"wait for the first slot, mean, min", &DayFigures::wait_mean, 1},
    {"the same, p95", &DayFigures::wait_p95, 1},
    {"jobs under 10 min alone: wait, mean, min", &DayFigures::short_wait_mean,
     1},
    {"the same, p95", &DayFigures::short_wait_p95, 1},
    {"urgent jobs: wait, p50, s", &DayFigures::urgent_wait_p50, 1},
    {"the same, p95", &DayFigures::urgent_wait_p95, 1},
    {"slowdown, mean", &DayFigures::slowdown_mean, 1},
    {"the same, p95", &DayFigures::slowdown_p95, 1},
    {"from submission to end, mean, min", &DayFigures::stay_mean, 1},
    {"the same, jobs under 10 min alone", &DayFigures::short_stay_mean, 1},
    {"the same, jobs of an hour and more alone", &DayFigures::long_stay_mean,
     0},
    {"device use, %", &DayFigures::use, 1},
    {"Jain's index of users' shares", &DayFigures::jain, 3},
    {"least share of a user", &DayFigures::least_share, 2},
    {"longest time without a slot, min", &DayFigures::longest_gap, 1},
    {"the lent device is free after, s", &DayFigures::loan_wait, 1},
};

constexpr int kWays = 5;
using Day = std::array<DayFigures, kWays>;

// In memory where there is such a folder: nothing here depends on a disk.
std::string NewRoot() {
  for (const char* folder : {"/dev/shm", "/tmp"}) {
    std::string name = absl::StrCat(folder, "/roundhouse_day_XXXXXX");
    if (mkdtemp(name.data()) != nullptr) return name;
  }
  ROUNDHOUSE_CHECK(false) << "no folder for a day";
  return "";
}

DayFigures ServerFigures(const TeamDay& day, ServerRule rule,
                         uint64_t host_bytes) {
  const std::string root = NewRoot();
  const absl::Time begun = absl::Now();
  const ServerDay ran =
      RunServerDay(day, {.root = root, .rule = rule, .host_bytes = host_bytes});
  std::filesystem::remove_all(root);
  absl::Duration beyond = -absl::InfiniteDuration();  // where none is
  for (const UrgentStart& urgent : ran.urgent) {
    beyond = std::max(beyond, urgent.waited - urgent.longest_slot);
  }
  std::cerr << "day_table: " << ran.slots << " slots in " << absl::Now() - begun
            << "; urgent jobs, once loaded, waited for "
            << "the longest slot and " << beyond << "\n";
  return FiguresOf(day, ran.run);
}

Day RunDay(uint64_t seed, uint64_t host_bytes) {
  const TeamDay day = MakeTeamDay({.seed = seed});
  const auto whole = [&day](WholeJobRule rule) {
    return FiguresOf(day, RunWholeJobs(day, rule));
  };
  return {ServerFigures(day, ServerRule::kShares, host_bytes),
          ServerFigures(day, ServerRule::kTwoJobs, host_bytes),
          whole(WholeJobRule::kInOrder), whole(WholeJobRule::kBackfill),
          whole(WholeJobRule::kWholePool)};
}

// "mean ± standard deviation" over days.
std::string Cell(const std::vector<Day>& days, const Row& row, int way) {
  double sum = 0, squares = 0;
  for (const Day& day : days) sum += day[way].*row.figure;
  const double count = static_cast<double>(days.size());
  const double mean = sum / count;
  for (const Day& day : days) {
    squares += std::pow(day[way].*row.figure - mean, 2);
  }
  const double deviation = count > 1 ? std::sqrt(squares / (count - 1)) : 0;
  return absl::StrFormat("%.*f ± %.*f", row.digits, mean, row.digits,
                         deviation);
}

absl::Status Run(const std::vector<std::string>& args) {
  int64_t count = 20, seed = 1;
  int64_t host_mib = ServerDayOptions().host_bytes >> 20;
  FlagSet flags;
  flags.AddInt("days", 0, "N", 1, &count, "how many days");
  flags.AddInt("seed", 0, "N", 0, &seed, "that of the first day");
  flags.AddInt("host_mib", 0, "N", 64, &host_mib,
               "the server's host memory (server_day.h)");
  RETURN_IF_ERROR(flags.Parse(args).status());
  SetLogLevel(LogLevel::kError);
  std::vector<Day> days;
  for (int64_t i = 0; i < count; ++i) {
    days.push_back(RunDay(static_cast<uint64_t>(seed + i),
                          static_cast<uint64_t>(host_mib) << 20));
  }
  std::cout << "| figure | Roundhouse | two at a time | in order | EASY | in "
               "order, all devices |\n|---|---:|---:|---:|---:|---:|\n";
  for (const Row& row : kRows) {
    std::cout << "| " << row.name << " |";
    for (int way = 0; way < kWays; ++way) {
      std::cout << " " << Cell(days, row, way) << " |";
    }
    std::cout << "\n";
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace roundhouse::day

int main(int argc, char** argv) {
  const absl::Status status = roundhouse::day::Run({argv + 1, argv + argc});
  if (status.ok()) return 0;
  std::cerr << "day_table: " << status << "\n";
  return 1;
}
