#include "client/patient_call.h"

#include "client/interrupt.h"

namespace roundhouse::client {

grpc::Status CallPatiently(Session* session,
                           const std::function<grpc::Status()>& call) {
  const RetryPolicy& retry = session->environment().stream_retry;
  for (int failures = 1;; ++failures) {
    const grpc::Status status = call();
    if (status.error_code() != grpc::StatusCode::ABORTED ||
        failures >= retry.attempts) {
      return status;
    }
    if (!session->interrupt()->Wait(retry.DelayAfter(failures))) {
      return grpc::Status(grpc::StatusCode::CANCELLED, "interrupted");
    }
  }
}

}  // namespace roundhouse::client
