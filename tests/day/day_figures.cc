#include "tests/day/day_figures.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/log.h"
#include "tests/bench/statistics.h"

namespace roundhouse::day {
namespace {

constexpr absl::Duration kSlowdownBound = absl::Seconds(10);

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

double At(const std::vector<double>& values, double q) {
  return values.empty() ? 0 : bench::Quantile(values, q);
}

// A user has one more or one less of something.
struct Change {
  absl::Duration at;
  int user = 0;
  int jobs = 0;
  int services = 0;
};

absl::Duration LentFrom(const TeamDay& day, const DayRun& run) {
  return run.lent.value_or(day.loan.until);
}

std::vector<Change> ChangesOf(const TeamDay& day, const DayRun& run) {
  std::vector<Change> changes;
  for (size_t i = 0; i < day.jobs.size(); ++i) {
    const DayJob& job = day.jobs[i];
    changes.push_back({.at = job.submitted, .user = job.user, .jobs = 1});
    changes.push_back({.at = *run.jobs[i].ended, .user = job.user, .jobs = -1});
  }
  for (const Service& service : run.services) {
    const int user = service.user;
    changes.push_back({.at = service.from, .user = user, .services = 1});
    changes.push_back({.at = service.until, .user = user, .services = -1});
  }
  // What is there changes then.
  changes.push_back({.at = LentFrom(day, run)});
  changes.push_back({.at = day.loan.until});
  std::stable_sort(
      changes.begin(), changes.end(),
      [](const Change& a, const Change& b) { return a.at < b.at; });
  return changes;
}

// Goes through the day from change to change.
class Sweep {
 public:
  // When the lent device is not there.
  Sweep(absl::Duration from, absl::Duration until)
      : lent_from_(from), lent_until_(until) {}

  void Add(const Change& change) {
    Pass(change.at);
    User& user = users_[change.user];
    user.jobs += change.jobs;
    user.services += change.services;
    const bool waits = user.jobs > 0 && user.services == 0;
    if (waits && !user.waits_since.has_value()) user.waits_since = now_;
    if (waits || !user.waits_since.has_value()) return;
    longest_gap_ = std::max(longest_gap_, now_ - *user.waits_since);
    user.waits_since.reset();
  }

  absl::Duration fair(int user) const { return users_[user].fair; }
  absl::Duration available() const { return available_; }
  absl::Duration longest_gap() const { return longest_gap_; }

 private:
  struct User {
    int jobs = 0;
    int services = 0;
    absl::Duration fair;
    std::optional<absl::Duration> waits_since;
  };

  void Pass(absl::Duration until) {
    const absl::Duration time = until - std::exchange(now_, until);
    std::array<int, kProjects> active = {};  // users
    for (int i = 0; i < kUsers; ++i) {
      if (users_[i].jobs > 0) ++active[ProjectOf(i)];
    }
    const auto projects =
        kProjects - std::count(active.begin(), active.end(), 0);
    if (projects == 0) return;
    const bool lent = until > lent_from_ && until <= lent_until_;
    const absl::Duration devices = (kDevices - (lent ? 1 : 0)) * time;
    available_ += devices;
    for (int i = 0; i < kUsers; ++i) {
      if (users_[i].jobs == 0) continue;
      users_[i].fair += devices / projects / active[ProjectOf(i)];
    }
  }

  const absl::Duration lent_from_;
  const absl::Duration lent_until_;
  absl::Duration now_;
  std::array<User, kUsers> users_;
  absl::Duration available_;
  absl::Duration longest_gap_;
};

void SetTimes(const TeamDay& day, const DayRun& run, DayFigures* figures) {
  std::vector<double> waits, short_waits, urgent_waits, slowdowns;
  std::vector<double> stays, short_stays, long_stays;
  for (size_t i = 0; i < day.jobs.size(); ++i) {
    const DayJob& job = day.jobs[i];
    const JobRun& ran = run.jobs[i];
    ROUNDHOUSE_CHECK(ran.ended.has_value()) << "a job has not ended";
    if (ran.cancelled) continue;
    const absl::Duration waited = *ran.began - job.submitted;
    const absl::Duration stayed = *ran.ended - job.submitted;
    const absl::Duration alone = AloneTimeOf(job);
    const double minutes = absl::ToDoubleMinutes(stayed);
    waits.push_back(absl::ToDoubleMinutes(waited));
    stays.push_back(minutes);
    slowdowns.push_back(std::max(
        1.0, absl::FDivDuration(stayed, std::max(alone, kSlowdownBound))));
    if (job.urgent) urgent_waits.push_back(absl::ToDoubleSeconds(waited));
    if (alone < kShortJob) {
      short_waits.push_back(waits.back());
      short_stays.push_back(minutes);
    }
    if (alone >= kLongJob) long_stays.push_back(minutes);
  }
  figures->wait_mean = Mean(waits);
  figures->wait_p95 = At(waits, 0.95);
  figures->short_wait_mean = Mean(short_waits);
  figures->short_wait_p95 = At(short_waits, 0.95);
  figures->urgent_wait_p50 = At(urgent_waits, 0.5);
  figures->urgent_wait_p95 = At(urgent_waits, 0.95);
  figures->slowdown_mean = Mean(slowdowns);
  figures->slowdown_p95 = At(slowdowns, 0.95);
  figures->stay_mean = Mean(stays);
  figures->short_stay_mean = Mean(short_stays);
  figures->long_stay_mean = Mean(long_stays);
}

void SetShares(const TeamDay& day, const DayRun& run, DayFigures* figures) {
  Sweep sweep(LentFrom(day, run), day.loan.until);
  for (const Change& change : ChangesOf(day, run)) sweep.Add(change);
  std::array<absl::Duration, kUsers> got = {};
  absl::Duration all;
  for (size_t i = 0; i < day.jobs.size(); ++i) {
    got[day.jobs[i].user] += run.jobs[i].device_time;
    all += run.jobs[i].device_time;
  }
  double sum = 0, squares = 0;
  int count = 0;
  for (int i = 0; i < kUsers; ++i) {
    if (sweep.fair(i) == absl::ZeroDuration()) continue;
    const double x = absl::FDivDuration(got[i], sweep.fair(i));
    figures->least_share = count == 0 ? x : std::min(figures->least_share, x);
    ++count;
    sum += x;
    squares += x * x;
  }
  figures->jain = squares == 0 ? 1 : sum * sum / (count * squares);
  figures->use = 100 * absl::FDivDuration(all, sweep.available());
  figures->longest_gap = absl::ToDoubleMinutes(sweep.longest_gap());
}

}  // namespace

DayFigures FiguresOf(const TeamDay& day, const DayRun& run) {
  DayFigures figures;
  SetTimes(day, run, &figures);
  SetShares(day, run, &figures);
  figures.loan_wait =
      absl::ToDoubleSeconds(run.lent.value_or(day.loan.until) - day.loan.from);
  return figures;
}

}  // namespace roundhouse::day
