// A day under a queue of whole jobs, as Slurm has it: each job gets a number of
// devices for itself, from its start to its end.
//
// It is kind to such queues.  A job on g devices is g times as fast, begins
// without delay and computes without bubbles.  How long it will take is known
// exactly, where people guess.  Urgent jobs go before all others that wait, and
// the loan before them.  While a device is lent, or to be lent, a job that asks
// for all of them takes those that are left.
//
// Pure.
#ifndef ROUNDHOUSE_TESTS_DAY_WHOLE_JOBS_H_
#define ROUNDHOUSE_TESTS_DAY_WHOLE_JOBS_H_

#include "tests/day/day_figures.h"
#include "tests/day/team_day.h"

namespace roundhouse::day {

enum class WholeJobRule {
  // First come, first served: nobody overtakes.
  kInOrder,
  // EASY (Lifka, "The ANL/IBM SP Scheduling System", JSSPP 1995), which Slurm's
  // sched/backfill is like: the first one has the earliest time at which enough
  // devices will be free, and others go ahead that do not delay it.
  kBackfill,
  // In order, each on all devices.
  kWholePool,
};

DayRun RunWholeJobs(const TeamDay& day, WholeJobRule rule);

}  // namespace roundhouse::day

#endif  // ROUNDHOUSE_TESTS_DAY_WHOLE_JOBS_H_
