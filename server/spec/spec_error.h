// What an absl::Status about a request carries besides its message: the field
// it is about and a reason in capitals.  server/api turns them into
// google.rpc.BadRequest and ErrorInfo.
//
// Pure functions; thread-safe.
#ifndef ROUNDHOUSE_SERVER_SPEC_SPEC_ERROR_H_
#define ROUNDHOUSE_SERVER_SPEC_SPEC_ERROR_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace roundhouse {

// The status of `code` with `message`; `field` may be "".  Reasons in use:
// UNKNOWN_FIELD, DUPLICATE_FIELD, CONFLICTING_FIELDS, MISSING_FIELD,
// INVALID_VALUE, INVALID_SYNTAX, NOT_AVAILABLE, PATH_OUTSIDE_DATA_ROOTS,
// PATH_NOT_FOUND, STATE_DIRECTORY_GONE, and the names of JobReason.
absl::Status FieldError(absl::StatusCode code, const std::string& reason,
                        const std::string& field, const std::string& message);

// kInvalidArgument.
absl::Status FieldError(const std::string& reason, const std::string& field,
                        const std::string& message);

// What the faults of one answer say in all; those beyond are counted.  Such an
// answer goes back in gRPC's trailers, which hold 8 KiB.
inline constexpr size_t kMaxFaultBytes = 4 << 10;

// One status of several, each from FieldError, in their order: the only one
// as it is, or "`what` has 3 errors" and a line for each.  kUnimplemented
// where all are; the reason is the first one's.
// REQUIRES: `faults` is not empty, and none of them is OK.
absl::Status FieldErrors(const std::string& what,
                         const std::vector<absl::Status>& faults);
// The faults that a status of FieldErrors is made of, as far as it shows them;
// none for any other status.
struct FieldFault {
  std::string field;  // may be ""
  std::string message;
};
std::vector<FieldFault> ErrorFaults(const absl::Status& status);

// "" where the status has none.
std::string ErrorReason(const absl::Status& status);
std::string ErrorField(const absl::Status& status);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_SPEC_SPEC_ERROR_H_
