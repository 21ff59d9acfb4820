#include "server/calls/call_audit.h"

#include <string>
#include <utility>

#include "base/clock.h"

namespace roundhouse {
namespace {

// Whether the message quotes nothing of what a request says: a job file's text
// may have what nobody else should read.
bool MayQuote(absl::StatusCode code) {
  return code == absl::StatusCode::kPermissionDenied ||
         code == absl::StatusCode::kUnauthenticated ||
         code == absl::StatusCode::kResourceExhausted ||
         code == absl::StatusCode::kFailedPrecondition ||
         code == absl::StatusCode::kUnavailable;
}

bool IsRefusal(absl::StatusCode code) {
  return code == absl::StatusCode::kPermissionDenied ||
         code == absl::StatusCode::kUnauthenticated;
}

// An RPC without a rule is refused.
bool Acts(const google::protobuf::Message& request) {
  const Rule* const rule = RuleOf(request);
  return rule != nullptr && rule->effect == Effect::kActs;
}

AuditRecord RecordOf(const CallDoor& door,
                     const grpc::ServerContextBase& context,
                     const google::protobuf::Message& request) {
  Asker asker = door.gate->AskerOf(context);
  return {.principal = std::move(asker.principal),
          .user = std::move(asker.user),
          .token = std::move(asker.token),
          .peer = std::move(asker.peer),
          .rpc = RpcOf(request),
          .resource = ResourceOf(request)};
}

void PutResult(const absl::Status& status, AuditRecord* record) {
  record->code = status.code();
  record->reason = ReasonOf(status);
  record->message.clear();
  if (MayQuote(status.code())) record->message = std::string(status.message());
}

}  // namespace

void AuditCall(const CallDoor& door, const grpc::ServerContextBase& context,
               const google::protobuf::Message& request,
               const absl::Status& status,
               const google::protobuf::Message* made) {
  if (!Acts(request) && !IsRefusal(status.code())) return;
  AuditRecord record = RecordOf(door, context, request);
  PutResult(status, &record);
  if (!status.ok()) return door.audit->RecordLater(std::move(record));
  if (made != nullptr) record.resource = TextField(*made, "name");
  door.audit->Record(std::move(record));
}

StreamAudit StreamAudit::Begin(const CallDoor& door,
                               const grpc::ServerContextBase& context,
                               const google::protobuf::Message& request) {
  StreamAudit audit;
  if (!Acts(request)) return audit;
  audit.audit_ = door.audit;
  audit.record_ = RecordOf(door, context, request);
  audit.record_->part = AuditPart::kBegin;
  audit.begun_ns_ = MonotonicNs();
  door.audit->Record(*audit.record_);
  return audit;
}

void StreamAudit::End(const absl::Status& status) {
  if (!record_.has_value()) return;
  PutResult(status, &*record_);
  record_->part = AuditPart::kEnd;
  record_->duration = absl::Nanoseconds(MonotonicNs() - begun_ns_);
  audit_->RecordLater(*std::exchange(record_, std::nullopt));
}

}  // namespace roundhouse
