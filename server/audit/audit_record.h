// A row of the audit: a call, or the beginning or end of a stream.
//
// Values; thread-compatible.
#ifndef ROUNDHOUSE_SERVER_AUDIT_AUDIT_RECORD_H_
#define ROUNDHOUSE_SERVER_AUDIT_AUDIT_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace roundhouse {

// Longer ones are cut.
inline constexpr size_t kMaxAuditResourceBytes = 256;
inline constexpr size_t kMaxAuditMessageBytes = 256;

// Stored: never renumber.
enum class AuditPart { kCall = 0, kBegin = 1, kEnd = 2 };

struct AuditRecord {
  int64_t number = 0;  // given by the store
  absl::Time time;     // of the row; of what is counted, when the count began
  std::string principal;  // "uid:1000"; "": nobody knows
  std::string user;       // "": without an account
  std::string token;      // its id; "": none
  std::string peer;       // from where
  std::string rpc;        // "AccountService/SetUser"
  AuditPart part = AuditPart::kCall;
  std::string resource;  // what it was about, or made
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string reason;   // FieldReasonName; "" when OK
  std::string message;  // why, where that quotes nothing of the request
  int64_t count = 1;    // times
  absl::Duration duration;
};

// `text`, or its first bytes with "..." behind them, whole characters.
std::string CutText(const std::string& text, size_t most_bytes);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_AUDIT_AUDIT_RECORD_H_
