#include "client/tables/audit_output.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/output.h"

namespace roundhouse::client {
namespace {

std::string OrDash(const std::string& text) {
  return text.empty() ? "-" : text;
}

// "anna (uid:1000)"
std::string WhoText(const v1::AuditRecord& record) {
  std::string who = OrDash(record.principal());
  if (!record.user().empty()) {
    who = absl::StrCat(record.user(), " (", record.principal(), ")");
  }
  if (!record.token().empty()) absl::StrAppend(&who, " ", record.token());
  return who;
}

// "SetUser", "ExportCheckpoint began".
std::string CallText(const v1::AuditRecord& record) {
  const std::string& rpc = record.rpc();
  std::string text =
      rpc.substr(rpc.find('/') == std::string::npos ? 0 : rpc.find('/') + 1);
  if (record.part() == v1::AUDIT_BEGIN) absl::StrAppend(&text, " began");
  if (record.part() == v1::AUDIT_END) {
    absl::StrAppend(&text, " ended after ",
                    ClockText(absl::Seconds(record.duration_seconds())));
  }
  return text;
}

// "OK", "NOT_FOUND", "PERMISSION_DENIED (12 times): only an admin may do this".
std::string ResultText(const v1::AuditRecord& record) {
  std::string text = record.code();
  if (!record.reason().empty() && record.reason() != record.code()) {
    absl::StrAppend(&text, " ", record.reason());
  }
  if (record.count() > 1) {
    absl::StrAppend(&text, " (", record.count(), " times)");
  }
  if (!record.message().empty()) {
    absl::StrAppend(&text, ": ", record.message());
  }
  return text;
}

}  // namespace

std::string AuditTable(const std::vector<v1::AuditRecord>& records) {
  std::vector<std::vector<std::string>> rows = {
      {"TIME (UTC)", "WHO", "FROM", "CALL", "ON", "RESULT"}};
  for (const v1::AuditRecord& record : records) {
    rows.push_back({absl::FormatTime("%Y-%m-%d %H:%M:%S", TimeOf(record.time()),
                                     absl::UTCTimeZone()),
                    WhoText(record), OrDash(record.peer()), CallText(record),
                    OrDash(record.resource()), ResultText(record)});
  }
  return FormatTable(rows);
}

std::optional<absl::Time> ParseWhen(const std::string& text, absl::Time now) {
  absl::Time time;
  std::string error;
  for (const char* format : {absl::RFC3339_full, "%Y-%m-%d"}) {
    if (absl::ParseTime(format, text, absl::UTCTimeZone(), &time, &error)) {
      return time;
    }
  }
  int64_t days = 0;
  absl::string_view rest = text;
  absl::Duration ago;
  if (absl::ConsumeSuffix(&rest, "d")) {
    if (!absl::SimpleAtoi(rest, &days)) return std::nullopt;
    ago = absl::Hours(24) * days;
  } else if (!absl::ParseDuration(text, &ago)) {
    return std::nullopt;
  }
  if (ago < absl::ZeroDuration()) return std::nullopt;
  return now - ago;
}

google::protobuf::Timestamp ToTimestamp(absl::Time time) {
  // What google.protobuf.Timestamp can say.
  constexpr int64_t kFirst = -62'135'596'800, kLast = 253'402'300'799;
  google::protobuf::Timestamp out;
  out.set_seconds(std::clamp(absl::ToUnixSeconds(time), kFirst, kLast));
  return out;
}

}  // namespace roundhouse::client
