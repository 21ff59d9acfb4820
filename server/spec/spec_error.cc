#include "server/spec/spec_error.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace roundhouse {
namespace {

// By the number of the reason.
constexpr const char* kReasonNames[] = {"",
                                        "UNKNOWN_FIELD",
                                        "DUPLICATE_FIELD",
                                        "CONFLICTING_FIELDS",
                                        "MISSING_FIELD",
                                        "OTHER_TOOLS_FIELD",
                                        "INVALID_VALUE",
                                        "INVALID_SYNTAX",
                                        "NOT_AVAILABLE",
                                        "NOT_FOUND",
                                        "ILLEGAL_STATE",
                                        "TRY_LATER",
                                        "REVISION_COMPACTED",
                                        "REQUEST_ID_REUSED",
                                        "CANCELLED",
                                        "UNAUTHENTICATED",
                                        "PERMISSION_DENIED",
                                        "PATH_OUTSIDE_DATA_ROOTS",
                                        "PATH_NOT_FOUND",
                                        "STATE_DIRECTORY_GONE",
                                        "INVALID_DATASET",
                                        "INVALID_MODEL",
                                        "HOST_MEMORY",
                                        "DEVICE_MEMORY",
                                        "CHECKPOINT_CORRUPT",
                                        "STORAGE_FULL",
                                        "NO_HEALTHY_DEVICE",
                                        "QUOTA",
                                        "INTERNAL"};
static_assert(std::size(kReasonNames) ==
              static_cast<size_t>(FieldReason::kInternal) + 1);

constexpr char kReasonUrl[] = "roundhouse/reason";
constexpr char kFieldUrl[] = "roundhouse/field";
// With the fault's number behind it, from 0.
constexpr char kFaultUrl[] = "roundhouse/fault/";
constexpr char kFaultFieldUrl[] = "roundhouse/fault-field/";

std::string Payload(const absl::Status& status, const std::string& url) {
  const auto payload = status.GetPayload(url);
  return payload.has_value() ? std::string(*payload) : "";
}

}  // namespace

const char* FieldReasonName(FieldReason reason) {
  const auto index = static_cast<size_t>(reason);
  ROUNDHOUSE_CHECK(index < std::size(kReasonNames));
  return kReasonNames[index];
}

std::ostream& operator<<(std::ostream& out, FieldReason reason) {
  return out << FieldReasonName(reason);
}

absl::Status RequestError(absl::StatusCode code, FieldReason reason,
                          const std::string& field, absl::string_view message) {
  absl::Status status(code, message);
  if (reason != FieldReason::kNone) {
    status.SetPayload(kReasonUrl, absl::Cord(FieldReasonName(reason)));
  }
  if (!field.empty()) status.SetPayload(kFieldUrl, absl::Cord(field));
  return status;
}

absl::Status RequestError(FieldReason reason, const std::string& field,
                          absl::string_view message) {
  return RequestError(absl::StatusCode::kInvalidArgument, reason, field,
                      message);
}

absl::Status FieldError(absl::StatusCode code, FieldReason reason,
                        const std::string& field, absl::string_view what) {
  return RequestError(
      code, reason, field,
      field.empty() ? std::string(what) : absl::StrCat(field, ": ", what));
}

absl::Status FieldError(FieldReason reason, const std::string& field,
                        absl::string_view what) {
  return FieldError(absl::StatusCode::kInvalidArgument, reason, field, what);
}

absl::Status FieldErrors(const std::string& what,
                         const std::vector<absl::Status>& faults) {
  if (faults.size() == 1) return faults[0];
  const bool later = std::all_of(
      faults.begin(), faults.end(),
      [](const absl::Status& fault) { return absl::IsUnimplemented(fault); });
  std::string text = absl::StrCat(what, " has ", faults.size(), " errors");
  size_t shown = 0;
  for (size_t bytes = 0; shown < faults.size(); ++shown) {
    bytes += faults[shown].message().size();
    if (bytes > kMaxFaultBytes && shown > 0) break;
    absl::StrAppend(&text, "\n", std::string(faults[shown].message()));
  }
  const std::string rest = absl::StrCat(
      "and ", faults.size() - shown, " more, which an answer has no room for");
  if (shown < faults.size()) absl::StrAppend(&text, "\n", rest);
  absl::Status status = RequestError(later ? absl::StatusCode::kUnimplemented
                                           : absl::StatusCode::kInvalidArgument,
                                     ErrorReason(faults[0]), "", text);
  for (size_t i = 0; i < shown; ++i) {
    status.SetPayload(absl::StrCat(kFaultUrl, i),
                      absl::Cord(faults[i].message()));
    status.SetPayload(absl::StrCat(kFaultFieldUrl, i),
                      absl::Cord(ErrorField(faults[i])));
  }
  if (shown == faults.size()) return status;
  status.SetPayload(absl::StrCat(kFaultUrl, shown), absl::Cord(rest));
  return status;
}

std::vector<FieldFault> ErrorFaults(const absl::Status& status) {
  std::vector<FieldFault> faults;
  for (size_t i = 0;; ++i) {
    FieldFault fault{Payload(status, absl::StrCat(kFaultFieldUrl, i)),
                     Payload(status, absl::StrCat(kFaultUrl, i))};
    if (fault.message.empty()) return faults;
    faults.push_back(std::move(fault));
  }
}

FieldReason ErrorReason(const absl::Status& status) {
  const std::string name = Payload(status, kReasonUrl);
  const auto found =
      std::find(std::begin(kReasonNames), std::end(kReasonNames), name);
  ROUNDHOUSE_CHECK(found != std::end(kReasonNames)) << name;
  return static_cast<FieldReason>(found - std::begin(kReasonNames));
}

std::string ErrorField(const absl::Status& status) {
  return Payload(status, kFieldUrl);
}

}  // namespace roundhouse
