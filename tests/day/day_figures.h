// What became of a day's jobs, and the figures by which ways to run it are
// compared.
//
// Pure.
#ifndef ROUNDHOUSE_TESTS_DAY_DAY_FIGURES_H_
#define ROUNDHOUSE_TESTS_DAY_DAY_FIGURES_H_

#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "tests/day/team_day.h"

namespace roundhouse::day {

// Times are since midnight.
struct JobRun {
  std::optional<absl::Duration> began;  // its first slot, or all of it
  std::optional<absl::Duration> ended;
  bool cancelled = false;
  int saves = 0;               // for others that needed its memory or place
  absl::Duration device_time;  // that was computed for it
};

// A time in which at least one device computed for the user.
struct Service {
  int user = 0;
  absl::Duration from;
  absl::Duration until;
};

struct DayRun {
  std::vector<JobRun> jobs;  // as TeamDay::jobs
  std::vector<Service> services;
  // When the lent device was its borrower's; nullopt: it never was.
  std::optional<absl::Duration> lent;
};

// Waits, slowdowns and times in the system are of jobs that nobody cancelled,
// urgent ones among them.
struct DayFigures {
  // From its submission to its first slot, in minutes.
  double wait_mean = 0;
  double wait_p95 = 0;
  double short_wait_mean = 0;  // of those that take less than kShortJob alone
  double short_wait_p95 = 0;
  // The same of urgent jobs, in seconds.
  double urgent_wait_p50 = 0;
  double urgent_wait_p95 = 0;
  // Bounded slowdown (Feitelson et al., "Theory and Practice in Parallel Job
  // Scheduling", JSSPP 1997): the time in the system over that alone on all
  // devices, or over 10 s where this is less; at least 1.
  double slowdown_mean = 0;
  double slowdown_p95 = 0;
  // In the system, in minutes.
  double stay_mean = 0;
  double short_stay_mean = 0;
  double long_stay_mean = 0;  // of those that take kLongJob alone
  // Device time that was computed over that which was there while a job was in
  // the system, in percent.  The lent device is not there while its borrower
  // has it.
  double use = 0;
  // Jain's index (Jain, Chiu, Hawe, DEC-TR-301, 1984) of x over users: device
  // time that was computed for the user, over his fair share of the devices
  // while he had a job in the system.  At each moment projects with jobs share
  // alike what is there, and so do users with jobs those of their project: the
  // max-min fair shares of users who can use any number of devices.
  double jain = 0;
  double least_share = 0;  // the lowest x
  // The longest time in which a user had jobs in the system and none was
  // computed, in minutes.
  double longest_gap = 0;
  // From the asked time to that at which the borrower had the device, in
  // seconds; the whole loan where he never had it.
  double loan_wait = 0;
};

// REQUIRES: every job has ended, and a job is urgent.
DayFigures FiguresOf(const TeamDay& day, const DayRun& run);

}  // namespace roundhouse::day

#endif  // ROUNDHOUSE_TESTS_DAY_DAY_FIGURES_H_
