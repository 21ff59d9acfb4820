// What the audit keeps of a stream: a row when it begins, one when it ends.
// Unary calls: AuditCall (unary_call.h).
//
// Thread-compatible.
#ifndef ROUNDHOUSE_SERVER_CALLS_CALL_AUDIT_H_
#define ROUNDHOUSE_SERVER_CALLS_CALL_AUDIT_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "server/audit/audit_log.h"
#include "server/calls/unary_call.h"

namespace roundhouse {

class StreamAudit {
 public:
  // None.
  StreamAudit() = default;

  // The row of the beginning, where the RPC has one.  Blocks for a disk.
  static StreamAudit Begin(const CallDoor& door, const Asker& asker,
                           const google::protobuf::Message& request);
  // The row of the end, once; never blocks.
  void End(const absl::Status& status);

 private:
  AuditLog* audit_ = nullptr;
  std::optional<AuditRecord> record_;
  int64_t begun_ns_ = 0;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_CALLS_CALL_AUDIT_H_
