// A day under the daemon: its real engine, queue, dispatcher and store in
// virtual time (tests/sim), and workers that take as long as the day says.
//
// Every model has three decoder layers, of which a step computes two forward
// first, and every stage runs on all devices: a long model's schedule in few
// slots.  Models differ in how long a layer takes and in host memory, as full
// training of 1.5, 5 and 15 billion parameters does on a server of 768 GiB.
#ifndef ROUNDHOUSE_TESTS_DAY_SERVER_DAY_H_
#define ROUNDHOUSE_TESTS_DAY_SERVER_DAY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/day/day_figures.h"
#include "tests/day/team_day.h"

namespace roundhouse::day {

enum class ServerRule {
  kShares,  // as the daemon is
  // As it was before it knew users: two jobs at a time, which share alike, of
  // those that have waited longest; none is urgent.
  kTwoJobs,
};

struct ServerDayOptions {
  std::string root;  // an empty folder
  ServerRule rule = ServerRule::kShares;
  // A small job needs 4.6 MiB, a middle one 15 and a large one 44: in a
  // thirtieth, a ninth and a third.
  uint64_t host_bytes = uint64_t{128} << 20;
};

// How an urgent job began.
struct UrgentStart {
  size_t job = 0;  // in TeamDay::jobs
  absl::Duration loaded;
  absl::Duration waited;        // from then to its first slot
  absl::Duration longest_slot;  // of those that devices had then
};

struct ServerDay {
  DayRun run;
  std::vector<UrgentStart> urgent;  // where some jobs are
  int64_t slots = 0;
};

// Stops the program where a job fails, or has not ended two days later.
ServerDay RunServerDay(const TeamDay& day, const ServerDayOptions& options);

}  // namespace roundhouse::day

#endif  // ROUNDHOUSE_TESTS_DAY_SERVER_DAY_H_
