// One job through the real daemon and client, observed: what of its steps is
// compute, and how long commands take to be dispatched.
#ifndef ROUNDHOUSE_TESTS_BENCH_DAEMON_JOB_H_
#define ROUNDHOUSE_TESTS_BENCH_DAEMON_JOB_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/bench/cpu_use.h"
#include "tests/bench/samples.h"

namespace roundhouse::bench {

struct DaemonJob {
  std::string root;  // of the source tree, or of Bazel's runfiles
  std::string run;   // a folder with job.yaml, for sockets and logs; 80 bytes
                     // at most
  std::vector<std::string> flags;  // of the daemon, besides its folders
  // Counted are the steps after `first_step`, up to the job's last one.
  int64_t first_step = 1;
  int64_t last_step = 0;
};

struct DaemonJobResult {
  StepSamples samples;
  UseShares use;
};

// The file's text; empty when it cannot be read.
std::string Contents(const std::string& path);

// Starts a daemon, submits run/job.yaml, waits for its end, stops the daemon.
// Errors name the program that failed and the file with what it printed.
absl::StatusOr<DaemonJobResult> RunDaemonJob(const DaemonJob& job);

}  // namespace roundhouse::bench

#endif  // ROUNDHOUSE_TESTS_BENCH_DAEMON_JOB_H_
