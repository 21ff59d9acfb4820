// What the process returns; scripts and batch systems rely on the numbers.
//
// Pure; thread-safe.
#ifndef ROUNDHOUSE_CLIENT_EXIT_CODE_H_
#define ROUNDHOUSE_CLIENT_EXIT_CODE_H_

#include <grpcpp/support/status.h>

#include "proto/roundhouse/v1/fine_tuning_job.pb.h"

namespace roundhouse::client {

enum class ExitCode {
  kOk = 0,
  kError = 1,
  kUsage = 2,
  kJobFailed = 3,
  kAuth = 4,
  kNotFound = 5,
  kPrecondition = 6,
  kQuota = 7,
  kUnavailable = 8,
  kCancelled = 9,
  // 128 + SIGINT, as shells have it: Ctrl-C before the awaited end.
  kDetached = 130,
};

// By the status's code; kOk for OK.
ExitCode ExitCodeForStatus(const grpc::Status& status);

// kOk, kJobFailed or kCancelled.  REQUIRES: IsFinal(state).
ExitCode ExitCodeForState(v1::JobState state);

// SUCCEEDED, FAILED, CANCELLED.
bool IsFinal(v1::JobState state);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_EXIT_CODE_H_
