// The audit between the wire and the inside.
//
// Pure functions; thread-safe.
#ifndef ROUNDHOUSE_SERVER_API_AUDIT_CONVERT_H_
#define ROUNDHOUSE_SERVER_API_AUDIT_CONVERT_H_

#include "absl/status/statusor.h"
#include "proto/roundhouse/v1/account.pb.h"
#include "server/audit/audit_log.h"

namespace roundhouse {

// kInvalidArgument with the field.
absl::StatusOr<AuditQuery> FromProto(const v1::ListAuditRequest& request);
v1::AuditRecord ToProto(const AuditRecord& record);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_AUDIT_CONVERT_H_
