// How the audit looks on a terminal, and the times that people ask for.
//
// Pure; thread-safe.
#ifndef ROUNDHOUSE_CLIENT_TABLES_AUDIT_OUTPUT_H_
#define ROUNDHOUSE_CLIENT_TABLES_AUDIT_OUTPUT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/roundhouse/v1/account.pb.h"

namespace roundhouse::client {

std::string AuditTable(const std::vector<v1::AuditRecord>& records);

// RFC 3339, a day (UTC), or how long before `now`: "90m", "12h", "7d".
// nullopt: none of them.
std::optional<absl::Time> ParseWhen(const std::string& text, absl::Time now);
google::protobuf::Timestamp ToTimestamp(absl::Time time);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_TABLES_AUDIT_OUTPUT_H_
