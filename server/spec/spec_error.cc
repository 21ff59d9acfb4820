#include "server/spec/spec_error.h"

#include "absl/strings/cord.h"

namespace roundhouse {
namespace {

constexpr char kReasonUrl[] = "roundhouse/reason";
constexpr char kFieldUrl[] = "roundhouse/field";

std::string Payload(const absl::Status& status, const char* url) {
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

std::string ErrorReason(const absl::Status& status) {
  return Payload(status, kReasonUrl);
}

std::string ErrorField(const absl::Status& status) {
  return Payload(status, kFieldUrl);
}

}  // namespace roundhouse
