// The quickstart's job through the real daemon, client and workers, observed.
#ifndef ROUNDHOUSE_TESTS_BENCH_QUICKSTART_JOB_H_
#define ROUNDHOUSE_TESTS_BENCH_QUICKSTART_JOB_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "tests/bench/daemon_job.h"

namespace roundhouse::bench {

// Steps before this one are not counted: the daemon looks for a plan after the
// fourth (server/planning/plan_search.h).
inline constexpr int64_t kFirstStep = 24;

struct QuickstartOptions {
  std::string root;     // of the source tree, or of Bazel's runfiles
  std::string scratch;  // an empty folder's path, 80 bytes at most
  int devices = 4;
  int64_t steps = 80;  // of the job; more than kFirstStep
  std::string fields;  // more lines of the job file
};

// Makes data and model into `scratch`.  Blocks for some seconds.
absl::Status MakeQuickstartInputs(const QuickstartOptions& options);

// Runs the job once.  REQUIRES: MakeQuickstartInputs.  Errors as RunDaemonJob.
absl::StatusOr<DaemonJobResult> RunQuickstartJob(
    const QuickstartOptions& options);

}  // namespace roundhouse::bench

#endif  // ROUNDHOUSE_TESTS_BENCH_QUICKSTART_JOB_H_
