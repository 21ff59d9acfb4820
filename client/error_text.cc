#include "client/error_text.h"

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/visible_text.h"
#include "proto/google/rpc/error_details.pb.h"
#include "proto/google/rpc/status.pb.h"

namespace roundhouse::client {
namespace {

struct Violation {
  std::string subject;
  std::string description;
};

using Violations = std::vector<Violation>;

template <typename Detail>
bool Unpack(const google::protobuf::Any& any, Detail* detail) {
  return any.Is<Detail>() && any.UnpackTo(detail);
}

void AddViolations(const google::protobuf::Any& any, Violations* out) {
  google::rpc::BadRequest bad_request;
  if (Unpack(any, &bad_request)) {
    for (const auto& violation : bad_request.field_violations()) {
      out->push_back({violation.field(), violation.description()});
    }
  }
  google::rpc::PreconditionFailure precondition;
  if (Unpack(any, &precondition)) {
    for (const auto& violation : precondition.violations()) {
      out->push_back({violation.subject(), violation.description()});
    }
  }
  google::rpc::QuotaFailure quota;
  if (Unpack(any, &quota)) {
    for (const auto& violation : quota.violations()) {
      out->push_back({violation.subject(), violation.description()});
    }
  }
  google::rpc::ResourceInfo resource;
  if (Unpack(any, &resource)) {
    out->push_back({resource.resource_name(), resource.description()});
  }
}

Violations ViolationsOf(const grpc::Status& status) {
  Violations violations;
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) {
    return violations;
  }
  for (const google::protobuf::Any& any : details.details()) {
    AddViolations(any, &violations);
  }
  return violations;
}

bool Says(const std::string& message, const Violation& violation) {
  return message.find(violation.description) != std::string::npos;
}

// "" where the description names it.
std::string SubjectText(const Violation& violation) {
  const std::string subject = absl::StrCat(violation.subject, ": ");
  if (violation.subject.empty() ||
      absl::StartsWith(violation.description, violation.subject) ||
      absl::StrContains(violation.description, subject)) {
    return "";
  }
  return VisibleLine(subject);
}

std::string CodeName(const grpc::Status& status) {
  return absl::StatusCodeToString(
      static_cast<absl::StatusCode>(status.error_code()));
}

// What gRPC says when nobody can be reached, around the system's reason.
std::optional<std::string> NoConnection(const grpc::Status& status) {
  const std::string& message = status.error_message();
  if (status.error_code() != grpc::StatusCode::UNAVAILABLE ||
      !status.error_details().empty() ||
      !absl::StartsWith(message, "failed to connect to all addresses")) {
    return std::nullopt;
  }
  const size_t colon = message.rfind(": ");
  return colon == std::string::npos ? message : message.substr(colon + 2);
}

std::string NoConnectionText(const std::string& doing,
                             const std::string& reason,
                             const ServerAddress& address) {
  return absl::StrCat(
      "roundhouse: ", VisibleLine(doing), ": no answer from ",
      VisibleLine(address.target), " (", VisibleLine(address.source),
      "): ", VisibleLine(reason), "\n",
      reason == "Permission denied"
          ? "Ask the server's admin for access to the socket and its folder."
          : "Is roundhoused running there?  --server or ROUNDHOUSE_SERVER "
            "names another address.",
      "\n");
}

}  // namespace

std::string MessageText(const std::string& message) {
  return absl::StrReplaceAll(VisibleText(message), {{"\n", "\n    "}});
}

std::string ErrorText(const std::string& doing, const grpc::Status& status,
                      const ServerAddress& address) {
  if (const auto reason = NoConnection(status)) {
    return NoConnectionText(doing, *reason, address);
  }
  std::string text =
      absl::StrCat("roundhouse: ", VisibleLine(doing), ": ", CodeName(status),
                   ": ", MessageText(status.error_message()), "\n");
  for (const Violation& violation : ViolationsOf(status)) {
    if (Says(status.error_message(), violation)) {
      continue;
    }
    absl::StrAppend(&text, "  ", SubjectText(violation),
                    MessageText(violation.description), "\n");
  }
  // What the server says of itself has details.
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE &&
      status.error_details().empty()) {
    absl::StrAppend(&text, "No answer from ", VisibleLine(address.target), " (",
                    VisibleLine(address.source),
                    "); is roundhoused running there?  Another address is "
                    "given with --server or ROUNDHOUSE_SERVER.\n");
  }
  return text;
}

}  // namespace roundhouse::client
