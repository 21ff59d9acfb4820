#include "server/limits/limit_table.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/nearest_name.h"
#include "base/status.h"
#include "server/spec/spec_error.h"
#include "server/store/store_check.h"
#include "server/store/store_rows.h"

namespace roundhouse {
namespace {

constexpr char kUserPrefix[] = "user:";
constexpr char kProjectPrefix[] = "project:";
constexpr int64_t kAny = std::numeric_limits<int64_t>::max();

// The constants are those of server/door/peers.h and
// server/calls/stream_pump.h, which hold for each user (api_limits_test
// compares).  Nothing else bounds the calls of all together.
constexpr LimitInfo kInfos[kLimits] = {
    {Limit::kCallsPerSecond, "calls_per_second", LimitScope::kUsersAndServer,
     1'000, kAny, "calls begun in this second"},
    {Limit::kOpenStreams, "open_streams", LimitScope::kUsersAndServer, 100,
     2'000, "streams open"},
    {Limit::kQueuedJobs, "queued_jobs", LimitScope::kUsersAndProjects,
     std::nullopt, kAny, "jobs that have not ended"},
    {Limit::kDiskBytes, "disk_bytes", LimitScope::kUsersAndProjects,
     std::nullopt, kAny, "bytes of checkpoints and uploads"},
    {Limit::kBytesInFlight, "bytes_in_flight", LimitScope::kUsers, 8 << 20,
     8 << 20, "bytes of requests that are not whole"},
    {Limit::kUnpackedBytes, "unpacked_bytes", LimitScope::kUsers, std::nullopt,
     kAny, "bytes of one upload once unpacked"},
    {Limit::kRunningJobs, "running_jobs", LimitScope::kUsersAndProjects,
     std::nullopt, kAny, "jobs that run", true, 0, true},
    {Limit::kUrgentJobs, "urgent_jobs", LimitScope::kUsersAndProjects, 0, kAny,
     "urgent jobs that have not ended", false},
    {Limit::kShare, "share", LimitScope::kShares, 1, kMostShare,
     "parts of the device time", false, 1, true},
    {Limit::kLentDevices, "lent_devices", LimitScope::kUsersAndServer, 0, kAny,
     "devices lent", false},
    {Limit::kGpuHours, "gpu_hours", LimitScope::kUsersAndProjects, std::nullopt,
     kAny, "hours of devices in the last seven days", true, 0, true},
    {Limit::kHostBytes, "host_bytes", LimitScope::kUsersAndProjects,
     std::nullopt, kAny, "bytes of host memory of running jobs", true, 0, true},
};

std::string Quoted(const std::string& text) {
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, 80)), "\"");
}

absl::Status CheckSubject(const AccountList& accounts,
                          const LimitSubject& subject, const LimitInfo& info) {
  const bool server = info.scope == LimitScope::kUsersAndServer ||
                      info.scope == LimitScope::kUsersAndProjects;
  const bool projects = info.scope == LimitScope::kUsersAndProjects ||
                        info.scope == LimitScope::kShares;
  if ((subject.text == kServer && !server) ||
      (!subject.project.empty() && !projects)) {
    return FieldError(
        FieldReason::kInvalidValue, "subject",
        absl::StrCat(info.name, " is none of ", subject.text,
                     "'s limits; users", projects ? " and projects" : "",
                     " have it"));
  }
  if (subject.project.empty()) {
    if (subject.user.empty() || accounts.User(subject.user) != nullptr) {
      return absl::OkStatus();
    }
    return FieldError(absl::StatusCode::kNotFound, FieldReason::kNotFound,
                      "subject",
                      absl::StrCat("there is no user ", Quoted(subject.user)));
  }
  if (accounts.projects.contains(subject.project)) return absl::OkStatus();
  return FieldError(
      absl::StatusCode::kNotFound, FieldReason::kNotFound, "subject",
      absl::StrCat("there is no project ", Quoted(subject.project)));
}

absl::Status CheckValue(const LimitSubject& subject, const LimitInfo& info,
                        int64_t value) {
  // What holds for everybody is in force already.
  const int64_t most = subject.text == kServer || !info.always_holds
                           ? info.most
                           : std::min(info.most, info.built_in.value_or(kAny));
  if (value >= info.least && value <= most) return absl::OkStatus();
  if (value < info.least) {
    return FieldError(FieldReason::kInvalidValue, "value",
                      info.least == 0
                          ? std::string("must not be negative")
                          : absl::StrCat("must be ", info.least, " or more"));
  }
  return FieldError(
      FieldReason::kInvalidValue, "value",
      absl::StrCat(value, " is more than ", most,
                   info.always_holds
                       ? ", which holds whatever the table says"
                       : std::string(", the most that there is")));
}

}  // namespace

absl::Span<const LimitInfo> LimitInfos() { return kInfos; }

const LimitInfo& InfoOf(Limit limit) {
  return kInfos[static_cast<size_t>(limit)];
}

absl::StatusOr<LimitSubject> ParseLimitSubject(const std::string& text) {
  LimitSubject subject{.text = text};
  if (text == kEverybody || text == kServer) return subject;
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, kUserPrefix)) {
    subject.user = std::string(rest);
    RETURN_IF_ERROR(CheckAccountName("subject", subject.user));
    return subject;
  }
  if (absl::ConsumePrefix(&rest, kProjectPrefix)) {
    subject.project = std::string(rest);
    RETURN_IF_ERROR(CheckAccountName("subject", subject.project));
    return subject;
  }
  return FieldError(FieldReason::kInvalidValue, "subject",
                    absl::StrCat(Quoted(text),
                                 " is none of user:NAME, project:NAME, "
                                 "everybody, server"));
}

absl::StatusOr<const LimitInfo*> FindLimit(const std::string& name) {
  std::vector<std::string> names;
  for (const LimitInfo& info : kInfos) {
    if (name == info.name) return &info;
    names.push_back(info.name);
  }
  return FieldError(FieldReason::kInvalidValue, "limit",
                    absl::StrCat("there is none of the name ", Quoted(name),
                                 DidYouMean(name, names), "; there are ",
                                 absl::StrJoin(names, ", ")));
}

std::optional<int64_t> LimitRows::Of(const std::string& subject,
                                     Limit limit) const {
  const auto found = values.find({limit, subject});
  if (found == values.end()) return std::nullopt;
  return found->second;
}

std::optional<LimitRows::Found> LimitRows::OfUser(const std::string& user,
                                                  Limit limit) const {
  for (const std::string& subject :
       {absl::StrCat(kUserPrefix, user), std::string(kEverybody)}) {
    const std::optional<int64_t> value = Of(subject, limit);
    if (value.has_value()) return Found{.subject = subject, .value = *value};
  }
  return std::nullopt;
}

bool LimitRows::Has(Limit limit) const {
  const auto first = values.lower_bound({limit, ""});
  return first != values.end() && first->first.first == limit;
}

absl::StatusOr<std::unique_ptr<LimitTable>> LimitTable::Load(
    JobStore* store, const Clock& clock) {
  std::unique_ptr<LimitTable> table(new LimitTable(store, clock));
  MutexLock change(table->change_mutex_);
  auto rows = std::make_shared<LimitRows>();
  RETURN_IF_ERROR(store->ReadWith([&rows](Database* db) -> absl::Status {
    ASSIGN_OR_RETURN(
        Statement select,
        db->Prepare(absl::StrCat("SELECT subject, name, value, ",
                                 RowIsWhole("limits"), " FROM limits")));
    while (true) {
      ASSIGN_OR_RETURN(const bool row, select.Step());
      if (!row) return absl::OkStatus();
      const auto info = FindLimit(select.Text(1));
      if (select.Int(3) == 0 || !info.ok()) {
        return DamagedRow("limits",
                          absl::StrCat(select.Text(0), " ", select.Text(1)));
      }
      rows->values[{(*info)->limit, select.Text(0)}] = select.Int(2);
    }
  }));
  table->Publish(std::move(rows));
  return table;
}

void LimitTable::Publish(std::shared_ptr<const LimitRows> rows) {
  changed_(*rows);
  MutexLock lock(mutex_);
  rows_ = std::move(rows);
}

void LimitTable::OnChange(std::function<void(const LimitRows&)> changed) {
  MutexLock change(change_mutex_);
  changed_ = std::move(changed);
  changed_(*rows());
}

std::shared_ptr<const LimitRows> LimitTable::rows() const {
  MutexLock lock(mutex_);
  return rows_;
}

absl::Status LimitTable::Set(const AccountList& accounts,
                             const std::string& subject,
                             const std::string& limit, int64_t value) {
  ASSIGN_OR_RETURN(const LimitSubject parsed, ParseLimitSubject(subject));
  ASSIGN_OR_RETURN(const LimitInfo* const info, FindLimit(limit));
  RETURN_IF_ERROR(CheckSubject(accounts, parsed, *info));
  RETURN_IF_ERROR(CheckValue(parsed, *info, value));
  MutexLock lock(change_mutex_);
  auto rows = std::make_shared<LimitRows>(*this->rows());
  rows->values[{info->limit, subject}] = value;
  if (rows->values.size() > kMaxLimitRows) {
    return FieldError(absl::StatusCode::kResourceExhausted, FieldReason::kQuota,
                      "limit", absl::StrCat(kMaxLimitRows, " rows at most"));
  }
  RETURN_IF_ERROR(store_->WriteWith([&](Database* db) -> absl::Status {
    ASSIGN_OR_RETURN(
        Statement put,
        db->Prepare("INSERT INTO limits VALUES (?, ?, ?, ?) ON CONFLICT "
                    "(subject, name) DO UPDATE SET value = excluded.value, "
                    "change_us = excluded.change_us"));
    put.Bind(subject).Bind(std::string(info->name)).Bind(value);
    return put.Bind(ToMicros(clock_.WallTime())).Run();
  }));
  Publish(std::move(rows));
  return absl::OkStatus();
}

absl::Status LimitTable::Remove(const std::string& subject,
                                const std::string& limit) {
  ASSIGN_OR_RETURN(const LimitSubject parsed, ParseLimitSubject(subject));
  ASSIGN_OR_RETURN(const LimitInfo* const info, FindLimit(limit));
  MutexLock lock(change_mutex_);
  auto rows = std::make_shared<LimitRows>(*this->rows());
  if (rows->values.erase({info->limit, subject}) == 0) {
    return FieldError(absl::StatusCode::kNotFound, FieldReason::kNotFound,
                      "limit",
                      absl::StrCat(subject, " has no ", limit, " of its own"));
  }
  RETURN_IF_ERROR(store_->WriteWith([&](Database* db) -> absl::Status {
    ASSIGN_OR_RETURN(
        Statement drop,
        db->Prepare("DELETE FROM limits WHERE subject = ? AND name = ?"));
    return drop.Bind(subject).Bind(std::string(info->name)).Run();
  }));
  Publish(std::move(rows));
  return absl::OkStatus();
}

}  // namespace roundhouse
