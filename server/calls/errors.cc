#include "server/calls/errors.h"

#include <string>
#include <vector>

#include "base/log.h"
#include "base/visible_text.h"
#include "proto/google/rpc/error_details.pb.h"
#include "proto/google/rpc/status.pb.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

constexpr int kRetrySeconds = 1;

bool IsOurFault(absl::StatusCode code) {
  return code == absl::StatusCode::kInternal ||
         code == absl::StatusCode::kUnknown ||
         code == absl::StatusCode::kDataLoss;
}

FieldReason DefaultReason(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
      return FieldReason::kInvalidValue;
    case absl::StatusCode::kNotFound:
      return FieldReason::kNotFound;
    case absl::StatusCode::kFailedPrecondition:
      return FieldReason::kIllegalState;
    case absl::StatusCode::kResourceExhausted:
      return FieldReason::kQuota;
    case absl::StatusCode::kOutOfRange:
      return FieldReason::kRevisionCompacted;
    case absl::StatusCode::kUnimplemented:
      return FieldReason::kNotAvailable;
    case absl::StatusCode::kUnavailable:
      return FieldReason::kTryLater;
    case absl::StatusCode::kCancelled:
      return FieldReason::kCancelled;
    case absl::StatusCode::kPermissionDenied:
      return FieldReason::kPermissionDenied;
    case absl::StatusCode::kUnauthenticated:
      return FieldReason::kUnauthenticated;
    default:
      return FieldReason::kInternal;
  }
}

template <typename Detail>
void Pack(const Detail& detail, google::rpc::Status* out) {
  out->add_details()->PackFrom(detail);
}

void PackBadRequest(const absl::Status& status, google::rpc::Status* out) {
  std::vector<FieldFault> faults = ErrorFaults(status);
  if (faults.empty()) faults = {{ErrorField(status), out->message()}};
  google::rpc::BadRequest detail;
  for (const FieldFault& fault : faults) {
    if (fault.field.empty() && faults.size() == 1) return;
    auto* violation = detail.add_field_violations();
    violation->set_field(ValidUtf8(fault.field));
    violation->set_description(ValidUtf8(fault.message));
  }
  Pack(detail, out);
}

// Several faults are told by the details only: trailers have little room.
std::string Message(const absl::Status& status) {
  const std::string text(status.message());
  return ValidUtf8(
      ErrorFaults(status).empty() ? text : text.substr(0, text.find('\n')));
}

void PackByCode(const absl::Status& status, const std::string& resource,
                google::rpc::Status* out) {
  switch (status.code()) {
    case absl::StatusCode::kFailedPrecondition: {
      google::rpc::PreconditionFailure detail;
      auto* violation = detail.add_violations();
      violation->set_type("STATE");
      violation->set_subject(resource);
      violation->set_description(out->message());
      return Pack(detail, out);
    }
    case absl::StatusCode::kResourceExhausted: {
      google::rpc::QuotaFailure detail;
      auto* violation = detail.add_violations();
      const std::string field = ErrorField(status);
      violation->set_subject(field.empty() ? resource : field);
      violation->set_description(out->message());
      return Pack(detail, out);
    }
    case absl::StatusCode::kNotFound: {
      // What a field names may be anything; the call itself is about a job.
      if (!ErrorField(status).empty()) return PackBadRequest(status, out);
      google::rpc::ResourceInfo detail;
      detail.set_resource_type("roundhouse.v1.FineTuningJob");
      detail.set_resource_name(resource);
      detail.set_description(out->message());
      return Pack(detail, out);
    }
    case absl::StatusCode::kUnavailable: {
      google::rpc::RetryInfo detail;
      detail.mutable_retry_delay()->set_seconds(kRetrySeconds);
      return Pack(detail, out);
    }
    default:
      return PackBadRequest(status, out);
  }
}

}  // namespace

std::string ReasonOf(const absl::Status& status) {
  if (status.ok()) return "";
  const FieldReason given =
      IsOurFault(status.code()) ? FieldReason::kNone : ErrorReason(status);
  return FieldReasonName(
      given == FieldReason::kNone ? DefaultReason(status.code()) : given);
}

grpc::Status ToGrpcStatus(const absl::Status& status,
                          const std::string& resource) {
  if (status.ok()) return grpc::Status::OK;
  google::rpc::Status out;
  const bool ours = IsOurFault(status.code());
  if (ours) RH_LOG(kError) << "answering INTERNAL: " << status;
  out.set_code(
      static_cast<int>(ours ? absl::StatusCode::kInternal : status.code()));
  out.set_message(ours ? "internal error; the server's log says more"
                       : Message(status));
  google::rpc::ErrorInfo info;
  info.set_reason(ReasonOf(status));
  info.set_domain(kErrorDomain);
  if (!resource.empty()) (*info.mutable_metadata())["resource"] = resource;
  Pack(info, &out);
  if (!ours) PackByCode(status, resource, &out);
  return grpc::Status(static_cast<grpc::StatusCode>(out.code()), out.message(),
                      out.SerializeAsString());
}

}  // namespace roundhouse
