#include "server/usage/usage_answer.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/spec/spec_error.h"
#include "server/store/store_records.h"
#include "server/usage/usage_table.h"

namespace roundhouse {
namespace {

constexpr int64_t kSecondsOfHour = 3'600;
constexpr int64_t kDefaultHours = 7 * 24;

// Doubles, since many rows may add up to more than 64 bits hold.
struct Sum {
  double device_ns = 0;
  double host_mib_seconds = 0;

  double device_hours() const { return device_ns / 1e9 / kSecondsOfHour; }
  double host_gib_hours() const {
    return host_mib_seconds / 1024 / kSecondsOfHour;
  }
  void Add(const UsageAmount& amount) {
    device_ns += static_cast<double>(amount.device_ns);
    host_mib_seconds += static_cast<double>(amount.host_mib_seconds);
  }
};

// User, project, and the job's number.
using Name = std::tuple<std::string, std::string, int64_t>;

Name NameOf(const UsageKey& key, v1::UsageSubject by) {
  switch (by) {
    case v1::USAGE_BY_PROJECT:
      return {"", key.project, 0};
    case v1::USAGE_BY_JOB:
      return {key.user, key.project, key.job};
    default:
      return {key.user, "", 0};
  }
}

v1::Usage ToProto(const Name& name, const Sum& sum, const Sum& all) {
  const auto& [user, project, job] = name;
  v1::Usage out;
  out.set_user(user);
  out.set_project(project);
  if (job != 0) out.set_job(NameOfJob(job));
  out.set_device_hours(sum.device_hours());
  out.set_host_gib_hours(sum.host_gib_hours());
  out.set_device_share(all.device_ns > 0 ? sum.device_ns / all.device_ns : 0);
  return out;
}

// The hour of `since`, which may be any number.
int64_t FirstHour(const v1::GetUsageRequest& request, absl::Time now) {
  if (!request.has_since()) return HourOf(now) - kDefaultHours;
  return std::max<int64_t>(0, request.since().seconds()) / kSecondsOfHour;
}

}  // namespace

absl::StatusOr<v1::GetUsageResponse> UsageAnswer(
    const JobStore& store, const v1::GetUsageRequest& request, absl::Time now) {
  if (!v1::UsageSubject_IsValid(request.by())) {
    return FieldError(FieldReason::kInvalidValue, "by",
                      absl::StrCat("there is none of number ",
                                   static_cast<int>(request.by())));
  }
  const int64_t since = FirstHour(request, now);
  Sum all;
  std::map<Name, Sum> sums;
  RETURN_IF_ERROR(ReadUsage(
      store, since, [&](const UsageKey& key, const UsageAmount& amount) {
        all.Add(amount);
        sums[NameOf(key, request.by())].Add(amount);
      }));
  std::vector<std::pair<Name, Sum>> sorted(sums.begin(), sums.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) {
                     return a.second.device_ns > b.second.device_ns;
                   });
  v1::GetUsageResponse out;
  for (const auto& [name, sum] : sorted) {
    if (out.usage_size() == kMaxUsageAnswer) break;
    *out.add_usage() = ToProto(name, sum, all);
  }
  out.set_left_out(static_cast<int64_t>(sorted.size()) - out.usage_size());
  out.set_device_hours(all.device_hours());
  out.set_host_gib_hours(all.host_gib_hours());
  out.mutable_since()->set_seconds(since * kSecondsOfHour);
  return out;
}

}  // namespace roundhouse
