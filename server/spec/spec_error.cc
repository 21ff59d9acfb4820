#include "server/spec/spec_error.h"

#include <algorithm>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace roundhouse {
namespace {

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

absl::Status FieldError(absl::StatusCode code, const std::string& reason,
                        const std::string& field, const std::string& message) {
  absl::Status status(code, message);
  status.SetPayload(kReasonUrl, absl::Cord(reason));
  if (!field.empty()) status.SetPayload(kFieldUrl, absl::Cord(field));
  return status;
}

absl::Status FieldError(const std::string& reason, const std::string& field,
                        const std::string& message) {
  return FieldError(absl::StatusCode::kInvalidArgument, reason, field, message);
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
  absl::Status status = FieldError(later ? absl::StatusCode::kUnimplemented
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

std::string ErrorReason(const absl::Status& status) {
  return Payload(status, kReasonUrl);
}

std::string ErrorField(const absl::Status& status) {
  return Payload(status, kFieldUrl);
}

}  // namespace roundhouse
