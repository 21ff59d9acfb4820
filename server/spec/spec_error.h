// What an absl::Status about a request carries besides its message: the field
// it is about and a reason in capitals.  server/api turns them into
// google.rpc.BadRequest and ErrorInfo.
//
// Pure functions; thread-safe.
#ifndef ROUNDHOUSE_SERVER_SPEC_SPEC_ERROR_H_
#define ROUNDHOUSE_SERVER_SPEC_SPEC_ERROR_H_

#include <string>

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

// "" where the status has none.
std::string ErrorReason(const absl::Status& status);
std::string ErrorField(const absl::Status& status);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_SPEC_SPEC_ERROR_H_
