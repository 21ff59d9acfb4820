#include "client/exit_code.h"

#include "base/log.h"

namespace roundhouse::client {

ExitCode ExitCodeForStatus(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::OK:
      return ExitCode::kOk;
    case grpc::StatusCode::UNAUTHENTICATED:
    case grpc::StatusCode::PERMISSION_DENIED:
      return ExitCode::kAuth;
    case grpc::StatusCode::NOT_FOUND:
      return ExitCode::kNotFound;
    case grpc::StatusCode::FAILED_PRECONDITION:
    case grpc::StatusCode::ABORTED:
      return ExitCode::kPrecondition;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return ExitCode::kQuota;
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return ExitCode::kUnavailable;
    case grpc::StatusCode::CANCELLED:
      return ExitCode::kCancelled;
    default:
      return ExitCode::kError;
  }
}

bool IsFinal(v1::JobState state) {
  return state == v1::SUCCEEDED || state == v1::FAILED ||
         state == v1::CANCELLED;
}

ExitCode ExitCodeForState(v1::JobState state) {
  ROUNDHOUSE_CHECK(IsFinal(state)) << v1::JobState_Name(state);
  if (state == v1::SUCCEEDED) {
    return ExitCode::kOk;
  }
  return state == v1::FAILED ? ExitCode::kJobFailed : ExitCode::kCancelled;
}

}  // namespace roundhouse::client
