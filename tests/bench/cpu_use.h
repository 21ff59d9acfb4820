// The processor time of a daemon and its workers, as /proc tells.
#ifndef ROUNDHOUSE_TESTS_BENCH_CPU_USE_H_
#define ROUNDHOUSE_TESTS_BENCH_CPU_USE_H_

#include <sys/types.h>

#include <map>
#include <string>

#include "absl/status/statusor.h"

namespace roundhouse::bench {

struct ThreadUse {
  double cpu_seconds = 0;
  double ready_seconds = 0;  // could have run, but had no core
};

// By thread id.
using ProcessUse = std::map<pid_t, ThreadUse>;

// By process: "daemon", "device 0" ..., "host", "files".
using DaemonUse = std::map<std::string, ProcessUse>;

// NOT_FOUND: a process of it ended meanwhile, or has no schedstat.
absl::StatusOr<DaemonUse> ReadDaemonUse(pid_t daemon);

// Between two readings of one daemon, shares of all its processor time.
struct UseShares {
  double compute = 0;  // the busiest thread of each device worker
  double device = 0;   // the other threads of the device workers
  double host = 0;     // the host worker
  double daemon = 0;   // the daemon
  double cpu_seconds = 0;
  // The share of the time in which the compute threads could compute and had no
  // core.
  double compute_ready = 0;
};
UseShares SharesBetween(const DaemonUse& before, const DaemonUse& after);

}  // namespace roundhouse::bench

#endif  // ROUNDHOUSE_TESTS_BENCH_CPU_USE_H_
