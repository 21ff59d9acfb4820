#include "server/api/audit_convert.h"

#include <optional>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/api/convert.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

static_assert(static_cast<int>(AuditPart::kCall) == v1::AUDIT_CALL &&
              static_cast<int>(AuditPart::kBegin) == v1::AUDIT_BEGIN &&
              static_cast<int>(AuditPart::kEnd) == v1::AUDIT_END);

constexpr char kFailed[] = "FAILED";
// gRPC's codes are Abseil's, by number and name.
constexpr int kLastCode = static_cast<int>(absl::StatusCode::kUnauthenticated);

absl::Time TimeOf(const google::protobuf::Timestamp& time) {
  return absl::FromUnixSeconds(time.seconds()) +
         absl::Nanoseconds(time.nanos());
}

absl::Status PutResult(const std::string& result, AuditQuery* query) {
  query->failed = result == kFailed;
  if (result.empty() || query->failed) return absl::OkStatus();
  for (int code = 0; code <= kLastCode; ++code) {
    if (absl::StatusCodeToString(static_cast<absl::StatusCode>(code)) !=
        result) {
      continue;
    }
    query->code = static_cast<absl::StatusCode>(code);
    return absl::OkStatus();
  }
  return FieldError(
      FieldReason::kInvalidValue, "result",
      absl::StrCat("\"", absl::CHexEscape(result.substr(0, 80)),
                   "\" is no code of gRPC, as OK or PERMISSION_DENIED, and not "
                   "FAILED"));
}

}  // namespace

absl::StatusOr<AuditQuery> FromProto(const v1::ListAuditRequest& request) {
  AuditQuery query{.user = request.user(),
                   .rpc = request.rpc(),
                   .resource = request.resource()};
  if (request.has_since()) query.since = TimeOf(request.since());
  if (request.has_until()) query.until = TimeOf(request.until());
  RETURN_IF_ERROR(PutResult(request.result(), &query));
  ASSIGN_OR_RETURN(query.limit, PageSize(request.page_size()));
  ASSIGN_OR_RETURN(query.before, PagePosition(request.page_token()));
  return query;
}

v1::AuditRecord ToProto(const AuditRecord& record) {
  v1::AuditRecord out;
  out.set_number(record.number);
  *out.mutable_time() = ToProto(record.time);
  out.set_user(record.user);
  out.set_principal(record.principal);
  out.set_token(record.token);
  out.set_peer(record.peer);
  out.set_rpc(record.rpc);
  out.set_part(static_cast<v1::AuditPart>(record.part));
  out.set_resource(record.resource);
  out.set_code(absl::StatusCodeToString(record.code));
  out.set_reason(record.reason);
  out.set_message(record.message);
  out.set_count(record.count);
  if (record.part != AuditPart::kEnd) return out;
  out.set_duration_seconds(absl::ToDoubleSeconds(record.duration));
  return out;
}

}  // namespace roundhouse
