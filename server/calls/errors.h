// absl::Status -> grpc::Status with google.rpc details in
// grpc-status-details-bin: ErrorInfo always, and by code BadRequest,
// PreconditionFailure, QuotaFailure, ResourceInfo or RetryInfo.
//
// What is our own fault (kInternal, kUnknown, kDataLoss) is logged and leaves
// as "internal error" without its words.
//
// Pure but for the log; thread-safe.
#ifndef ROUNDHOUSE_SERVER_CALLS_ERRORS_H_
#define ROUNDHOUSE_SERVER_CALLS_ERRORS_H_

#include <string>

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace roundhouse {

inline constexpr char kErrorDomain[] = "roundhouse";

// Why, as ErrorInfo has it: "INVALID_VALUE"; "" when OK.
std::string ReasonOf(const absl::Status& status);

// `resource` is the name of the job the call was about, or "".
grpc::Status ToGrpcStatus(const absl::Status& status,
                          const std::string& resource = "");

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_CALLS_ERRORS_H_
