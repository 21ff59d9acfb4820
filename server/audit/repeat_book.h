// Counts what comes again and again, so that nobody fills the audit with it.
//
// The first failure of a caller, RPC and result is a row at once; those like it
// in the next minute are counted and make one row when the minute is over.  So
// are calls that succeed, of those that change nothing the second time, of one
// resource.  A caller whom nobody knows is his address.
//
// Thread-compatible.
#ifndef ROUNDHOUSE_SERVER_AUDIT_REPEAT_BOOK_H_
#define ROUNDHOUSE_SERVER_AUDIT_REPEAT_BOOK_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/audit/audit_record.h"

namespace roundhouse {

inline constexpr absl::Duration kRepeatInterval = absl::Minutes(1);
// What is counted apart; everything beyond is counted together.
inline constexpr size_t kMaxRepeats = 4'096;
inline constexpr char kOtherRepeats[] = "(others)";

class RepeatBook {
 public:
  // Whether the record is one more of those that are counted; false: write it.
  // `now_ns`: MonotonicNs.
  bool Counts(const AuditRecord& record, int64_t now_ns);
  // Rows of the minutes that are over, and no longer counted.
  std::vector<AuditRecord> TakeEnded(int64_t now_ns);
  std::vector<AuditRecord> TakeAll();
  // When the next minute is over; nullopt: nothing is counted.
  std::optional<int64_t> next_end_ns() const;

 private:
  struct Key {
    std::string caller;
    std::string rpc;
    absl::StatusCode code = absl::StatusCode::kUnknown;
    std::string resource;  // of what succeeded
    auto operator<=>(const Key&) const = default;
  };
  struct Repeated {
    AuditRecord first;  // of those counted
    int64_t count = 0;
    int64_t end_ns = 0;
  };

  std::map<Key, Repeated> repeated_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_AUDIT_REPEAT_BOOK_H_
