#include "server/usage/usage_table.h"

#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "server/store/store_check.h"

namespace roundhouse {
namespace {

// Rows that one read takes.
constexpr int64_t kRowsOfRead = 4'096;

absl::Status WriteRow(Database* db, const UsageKey& key,
                      const UsageAmount& amount) {
  ASSIGN_OR_RETURN(
      Statement write,
      db->Prepare("INSERT INTO usage (hour, job, project, user, part, "
                  "device_ns, host_mib_seconds) VALUES (?, ?, ?, ?, ?, ?, ?) "
                  "ON CONFLICT (hour, job, project, user, part) DO UPDATE SET "
                  "device_ns = excluded.device_ns, "
                  "host_mib_seconds = excluded.host_mib_seconds"));
  write.Bind(key.hour).Bind(key.job).Bind(key.project).Bind(key.user);
  write.Bind(key.part).Bind(amount.device_ns).Bind(amount.host_mib_seconds);
  return write.Run();
}

UsageKey KeyOf(const Statement& row) {
  return {.hour = row.Int(0),
          .job = row.Int(1),
          .project = row.Text(2),
          .user = row.Text(3),
          .part = row.Int(4)};
}

// The next rows after `last`, which becomes the last of them; false: there are
// no more.
absl::StatusOr<bool> ReadSome(
    Database* db, UsageKey& last,
    const std::function<void(const UsageKey&, const UsageAmount&)>& read) {
  static const std::string& sql = *new std::string(absl::StrCat(
      "SELECT hour, job, project, user, part, device_ns, host_mib_seconds, ",
      RowIsWhole("usage"), " FROM usage WHERE (hour, job, project, user, part)",
      " > (?, ?, ?, ?, ?) ORDER BY hour, job, project, user, part LIMIT ?"));
  ASSIGN_OR_RETURN(Statement select, db->Prepare(sql));
  select.Bind(last.hour).Bind(last.job).Bind(last.project).Bind(last.user);
  select.Bind(last.part).Bind(kRowsOfRead);
  for (int64_t count = 0;; ++count) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return count == kRowsOfRead;
    last = KeyOf(select);
    if (select.Int(7) == 0) {
      return DamagedRow("usage", absl::StrCat("hour ", last.hour, " job-",
                                              last.job, " of ", last.user));
    }
    read(last, {select.Int(5), select.Int(6)});
  }
}

}  // namespace

int64_t HourOf(absl::Time time) {
  return absl::ToUnixSeconds(time) / absl::ToInt64Seconds(absl::Hours(1));
}

absl::Status WriteUsage(JobStore& store, const UsageRows& rows) {
  return store.WriteWith([&rows](Database* db) -> absl::Status {
    for (const auto& [key, amount] : rows) {
      const absl::Status written = WriteRow(db, key, amount);
      if (absl::IsDataLoss(written)) {
        RH_LOG(kWarning) << "usage of hour " << key.hour << ", job-" << key.job
                         << " is not counted on: " << written.message();
        continue;
      }
      RETURN_IF_ERROR(written);
    }
    return absl::OkStatus();
  });
}

absl::Status DropOldUsage(JobStore& store, int64_t hour) {
  return store.WriteWith([hour](Database* db) -> absl::Status {
    ASSIGN_OR_RETURN(
        Statement drop,
        db->Prepare("DELETE FROM usage WHERE hour < ?1 OR hour < (SELECT hour "
                    "FROM usage ORDER BY hour DESC LIMIT 1 OFFSET ?2)"));
    return drop.Bind(hour - kUsageHoursKept).Bind(kMaxUsageRows).Run();
  });
}

absl::Status ReadUsage(
    const JobStore& store, int64_t since_hour,
    const std::function<void(const UsageKey&, const UsageAmount&)>& read) {
  UsageKey last{.hour = since_hour, .job = -1};
  bool more = true;
  while (more) {
    RETURN_IF_ERROR(store.ReadWith([&](Database* db) -> absl::Status {
      ASSIGN_OR_RETURN(more, ReadSome(db, last, read));
      return absl::OkStatus();
    }));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> NextUsagePart(const JobStore& store) {
  int64_t last = 0;
  RETURN_IF_ERROR(store.ReadWith([&last](Database* db) -> absl::Status {
    ASSIGN_OR_RETURN(last,
                     db->QueryInt("SELECT coalesce(max(part), 0) FROM usage"));
    return absl::OkStatus();
  }));
  return last == std::numeric_limits<int64_t>::max() ? last : last + 1;
}

}  // namespace roundhouse
