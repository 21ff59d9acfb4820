#include "server/audit/repeat_book.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace roundhouse {

bool RepeatBook::Counts(const AuditRecord& record, int64_t now_ns) {
  const bool failed = record.code != absl::StatusCode::kOk;
  Key key{.caller = record.principal.empty() ? "from " + record.peer
                                             : record.principal,
          .rpc = record.rpc,
          .code = record.code,
          .resource = failed ? "" : record.resource};
  AuditRecord counted = record;
  auto found = repeated_.find(key);
  if (found == repeated_.end() && repeated_.size() >= kMaxRepeats) {
    counted = {.time = record.time, .rpc = kOtherRepeats, .code = record.code};
    key = {.rpc = kOtherRepeats};
    found = repeated_.find(key);
  }
  const int64_t end_ns = now_ns + absl::ToInt64Nanoseconds(kRepeatInterval);
  if (found == repeated_.end()) {
    const bool other = counted.rpc == kOtherRepeats;
    repeated_.emplace(key, Repeated{.first = std::move(counted),
                                    .count = other ? 1 : 0,
                                    .end_ns = end_ns});
    return other;
  }
  if (found->second.count++ == 0) found->second.first = std::move(counted);
  return true;
}

std::vector<AuditRecord> RepeatBook::TakeEnded(int64_t now_ns) {
  std::vector<AuditRecord> rows;
  for (auto at = repeated_.begin(); at != repeated_.end();) {
    Repeated& repeated = at->second;
    if (repeated.end_ns > now_ns) {
      ++at;
      continue;
    }
    if (repeated.count > 0) {
      repeated.first.count = repeated.count;
      rows.push_back(std::move(repeated.first));
    }
    at = repeated_.erase(at);
  }
  return rows;
}

std::vector<AuditRecord> RepeatBook::TakeAll() {
  return TakeEnded(std::numeric_limits<int64_t>::max());
}

std::optional<int64_t> RepeatBook::next_end_ns() const {
  std::optional<int64_t> next;
  for (const auto& [key, repeated] : repeated_) {
    next = std::min(next.value_or(repeated.end_ns), repeated.end_ns);
  }
  return next;
}

}  // namespace roundhouse
