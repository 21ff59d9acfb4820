// What an absl::Status about a request carries besides its message: the field
// it is about and a reason in capitals.  server/api turns them into
// google.rpc.BadRequest and ErrorInfo.
//
// Pure functions; thread-safe.
#ifndef ROUNDHOUSE_SERVER_SPEC_SPEC_ERROR_H_
#define ROUNDHOUSE_SERVER_SPEC_SPEC_ERROR_H_

#include <cstddef>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace roundhouse {

// Why a request is refused.  API clients see the names, which stay as they are.
enum class FieldReason {
  kNone,  // the status says no reason
  kUnknownField,
  kDuplicateField,
  kConflictingFields,
  kMissingField,
  kOtherToolsField,
  kInvalidValue,
  kInvalidSyntax,
  kNotAvailable,
  kNotFound,
  kIllegalState,
  kTryLater,
  kRevisionCompacted,
  kRequestIdReused,
  kCancelled,
  kUnauthenticated,
  kPermissionDenied,
  kPathOutsideDataRoots,
  kPathNotFound,
  kStateDirectoryGone,
  // Some of JobReason, by the same names: a request may be refused for them.
  kInvalidDataset,
  kInvalidModel,
  kHostMemory,
  kDeviceMemory,
  kCheckpointCorrupt,
  kStorageFull,
  kNoHealthyDevice,
  kQuota,
  kInternal,
};

// "INVALID_VALUE"; "" for kNone.
const char* FieldReasonName(FieldReason reason);
std::ostream& operator<<(std::ostream& out, FieldReason reason);

// The status of `code` with the message "`field`: `what`"; `what` alone where
// `field` is "".
absl::Status FieldError(absl::StatusCode code, FieldReason reason,
                        const std::string& field, absl::string_view what);
// kInvalidArgument.
absl::Status FieldError(FieldReason reason, const std::string& field,
                        absl::string_view what);

// The same with a message that names the field in its own words, or is another
// status's.
absl::Status RequestError(absl::StatusCode code, FieldReason reason,
                          const std::string& field, absl::string_view message);
absl::Status RequestError(FieldReason reason, const std::string& field,
                          absl::string_view message);

// What the faults of one answer say in all; those beyond are counted.  Such an
// answer goes back in gRPC's trailers, which hold 8 KiB.
inline constexpr size_t kMaxFaultBytes = 4 << 10;

// One status of several, each from the functions above, in their order: the
// only one as it is, or "`what` has 3 errors" and a line for each.
// kUnimplemented where all are; the reason is the first one's. REQUIRES:
// `faults` is not empty, and none of them is OK.
absl::Status FieldErrors(const std::string& what,
                         const std::vector<absl::Status>& faults);
// The faults that a status of FieldErrors is made of, as far as it shows them;
// none for any other status.
struct FieldFault {
  std::string field;  // may be ""
  std::string message;
};
std::vector<FieldFault> ErrorFaults(const absl::Status& status);

FieldReason ErrorReason(const absl::Status& status);
// "" where the status has none.
std::string ErrorField(const absl::Status& status);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_SPEC_SPEC_ERROR_H_
