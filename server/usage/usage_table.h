// What jobs and users had of the server, hour by hour: the table `usage` of the
// job store.
//
// A row is what a job had in an hour, in one part of a daemon's life: its
// totals so far, so that writing a row again counts nothing twice.  A part
// begins with each daemon, and where the clock is set back.
//
// Rows stay when their job is deleted.  Those of 400 days ago go, and beyond
// 200,000 the oldest hours do: sixteen jobs that run day and night fill that in
// 500 days.
//
// Thread-safe.  Writes block for one commit.  Reads block for a few thousand
// rows at a time, between which others read.
#ifndef ROUNDHOUSE_SERVER_USAGE_USAGE_TABLE_H_
#define ROUNDHOUSE_SERVER_USAGE_USAGE_TABLE_H_

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/store/store.h"

namespace roundhouse {

inline constexpr int64_t kMaxUsageRows = 200'000;
inline constexpr int64_t kUsageHoursKept = 400 * 24;

struct UsageKey {
  int64_t hour = 0;  // since the epoch
  int64_t job = 0;   // its number; 0: no job, but a sample of the user's
  std::string project;
  std::string user;
  int64_t part = 0;
  auto operator<=>(const UsageKey&) const = default;
};

struct UsageAmount {
  int64_t device_ns = 0;         // that devices computed
  int64_t host_mib_seconds = 0;  // of the arena
  bool operator==(const UsageAmount&) const = default;
};

using UsageRows = std::map<UsageKey, UsageAmount>;

int64_t HourOf(absl::Time time);

// In place of those of the same key, all or none.  A damaged row stays as it
// is, which the log says.
absl::Status WriteUsage(JobStore& store, const UsageRows& rows);
// Removes what is not kept any more at `hour`.
absl::Status DropOldUsage(JobStore& store, int64_t hour);

// All rows of `since_hour` and later, in the order of their keys.  kDataLoss: a
// row differs from its checksum.
absl::Status ReadUsage(
    const JobStore& store, int64_t since_hour,
    const std::function<void(const UsageKey&, const UsageAmount&)>& read);
// One that no row has.
absl::StatusOr<int64_t> NextUsagePart(const JobStore& store);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_USAGE_USAGE_TABLE_H_
