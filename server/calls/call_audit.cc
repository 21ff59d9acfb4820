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

// It only asks what the call would do.
bool OnlyAsks(const google::protobuf::Message& request) {
  using google::protobuf::FieldDescriptor;
  const FieldDescriptor* const field =
      request.GetDescriptor()->FindFieldByName("validate_only");
  return field != nullptr && !field->is_repeated() &&
         field->cpp_type() == FieldDescriptor::CPPTYPE_BOOL &&
         request.GetReflection()->GetBool(request, field);
}

// An RPC without a rule is refused.
bool Acts(const google::protobuf::Message& request) {
  const Rule* const rule = RuleOf(request);
  return rule != nullptr && rule->effect != Effect::kLooks &&
         !OnlyAsks(request);
}

bool IsAlikeAgain(const google::protobuf::Message& request) {
  const Rule* const rule = RuleOf(request);
  return rule != nullptr && rule->effect == Effect::kActsAlike;
}

AuditRecord RecordOf(const Asker& asker,
                     const google::protobuf::Message& request) {
  return {.principal = asker.principal,
          .user = asker.user,
          .token = asker.token,
          .peer = asker.peer,
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

Peer ShareOf(const Caller& caller) {
  return caller.uid.has_value() ? Peer(*caller.uid)
                                : Peer::OfHolder(caller.principal);
}

CallOrigin OriginOf(const CallDoor& door,
                    const grpc::ServerContextBase& context) {
  CallOrigin origin{.caller = door.gate->CallerOf(context)};
  if (!origin.caller.ok()) {
    origin.asker = door.gate->AskerOf(context);
    return origin;
  }
  const Caller& caller = *origin.caller;
  origin.share = ShareOf(caller);
  origin.asker = {.principal = caller.principal,
                  .user = caller.user,
                  .token = caller.token,
                  .peer = door.gate->AddressOf(context)};
  return origin;
}

void AuditCall(const CallDoor& door, const Asker& asker,
               const google::protobuf::Message& request,
               const absl::Status& status,
               const google::protobuf::Message* made) {
  if (!Acts(request) && !IsRefusal(status.code())) return;
  AuditRecord record = RecordOf(asker, request);
  PutResult(status, &record);
  if (!status.ok()) return door.audit->RecordLater(std::move(record));
  if (made != nullptr) record.resource = TextField(*made, "name");
  if (IsAlikeAgain(request)) return door.audit->RecordAlike(std::move(record));
  door.audit->Record(std::move(record));
}

StreamAudit StreamAudit::Begin(const CallDoor& door, const Asker& asker,
                               const google::protobuf::Message& request) {
  StreamAudit audit;
  if (!Acts(request)) return audit;
  audit.audit_ = door.audit;
  audit.record_ = RecordOf(asker, request);
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
