#include "server/limits/limit_check.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/spec/spec_error.h"
#include "server/store/store_rows.h"

namespace roundhouse {
namespace {

absl::StatusOr<int64_t> QueryCounted(Database* db, const std::string& sql,
                                     const Counted& counted) {
  ASSIGN_OR_RETURN(
      Statement select,
      db->Prepare(absl::StrCat(sql,
                               " AND (?1 = '' OR jobs.owner = ?1) "
                               "AND (?2 = '' OR jobs.project = ?2)")));
  ASSIGN_OR_RETURN(const bool row,
                   select.Bind(counted.owner).Bind(counted.project).Step());
  return row ? select.Int(0) : 0;
}

// Jobs that have not ended; for kUrgentJobs the urgent ones of them.
absl::StatusOr<int64_t> CountJobs(Database* db, Limit limit,
                                  const Counted& counted) {
  static const std::string& live = *new std::string(absl::StrCat(
      "SELECT count(*) FROM jobs WHERE state IN (", LiveStates(), ")"));
  static const std::string& urgent =
      *new std::string(absl::StrCat(live, " AND priority = 1"));
  return QueryCounted(db, limit == Limit::kUrgentJobs ? urgent : live, counted);
}

absl::StatusOr<int64_t> BytesOfCheckpoints(Database* db,
                                           const Counted& counted) {
  return QueryCounted(db,
                      "SELECT coalesce(sum(size_bytes), 0) FROM checkpoints "
                      "JOIN jobs ON jobs.number = checkpoints.job WHERE true",
                      counted);
}

}  // namespace

LimitCheck::LimitCheck(const LimitTable* table, const JobStore* store,
                       const Clock& clock)
    : table_(table), store_(store), clock_(clock) {}

absl::Status LimitCheck::Reached(const LimitRows::Found& limit, Limit name,
                                 int64_t used, int64_t more) {
  const LimitInfo& info = InfoOf(name);
  return RequestError(
      absl::StatusCode::kResourceExhausted, FieldReason::kQuota, limit.subject,
      absl::StrCat(info.name, " of ", limit.subject, " is ", limit.value,
                   ", and there are ", used, " ", info.meaning,
                   more == 1 ? "" : absl::StrCat("; ", more, " more are asked"),
                   "; an admin changes it with: roundhouse limit set ",
                   limit.subject, " ", info.name, " VALUE"));
}

std::optional<LimitRows::Found> LimitCheck::OfCaller(const Caller& caller,
                                                     Limit limit) const {
  if (caller.admin) return std::nullopt;
  return table_->rows()->OfUser(caller.user, limit);
}

LimitCheck::HoldingRows LimitCheck::Holding(const Caller& caller,
                                            const std::string& project,
                                            Limit limit) const {
  HoldingRows holding;
  if (caller.admin && !InfoOf(limit).for_admins) return holding;
  const auto rows = table_->rows();
  if (const auto own = rows->OfUser(caller.user, limit); own.has_value()) {
    holding.push_back({*own, {.owner = caller.owner()}});
  } else if (const LimitInfo& info = InfoOf(limit); !info.always_holds) {
    holding.push_back({{.subject = absl::StrCat("user:", caller.user),
                        .value = *info.built_in},
                       {.owner = caller.owner()}});
  }
  const std::string subject = absl::StrCat("project:", project);
  if (const auto value = rows->Of(subject, limit); value.has_value()) {
    holding.push_back(
        {{.subject = subject, .value = *value}, {.project = project}});
  }
  if (const auto value = rows->Of(kServer, limit); value.has_value()) {
    holding.push_back({{.subject = kServer, .value = *value}, {}});
  }
  return holding;
}

bool LimitCheck::Take(const std::string& key, int64_t per_second) {
  const absl::Time now =
      absl::UnixEpoch() + absl::Nanoseconds(clock_.MonotonicNs());
  const auto rate = static_cast<double>(per_second);
  if (buckets_.size() >= kMaxCountedUsers && !buckets_.contains(key)) {
    buckets_.clear();
  }
  auto found = buckets_.find(key);
  if (found != buckets_.end() && found->second.per_second != per_second) {
    buckets_.erase(found);
    found = buckets_.end();
  }
  if (found == buckets_.end()) {
    found = buckets_
                .emplace(key, Bucket{.per_second = per_second,
                                     .calls = TokenBucket(rate, now)})
                .first;
  }
  return found->second.calls.Take(now);
}

absl::Status LimitCheck::CheckCall(const Caller& caller) {
  if (stopped_) {
    return absl::UnavailableError(
        "the server is stopping; nothing was done, try again");
  }
  const auto holding = Holding(caller, "", Limit::kCallsPerSecond);
  MutexLock lock(mutex_);
  for (const auto& [limit, counted] : holding) {
    if (Take(counted.owner, limit.value)) continue;
    return Reached(limit, Limit::kCallsPerSecond, limit.value, 1);
  }
  return absl::OkStatus();
}

int64_t LimitCheck::Streams(const Counted& counted) const {
  if (counted.owner.empty()) return all_streams_;
  const auto found = streams_.find(counted.owner);
  return found == streams_.end() ? 0 : found->second;
}

absl::StatusOr<StreamTicket> LimitCheck::OpenStream(const Caller& caller) {
  const auto holding = Holding(caller, "", Limit::kOpenStreams);
  MutexLock lock(mutex_);
  for (const auto& [limit, counted] : holding) {
    const int64_t open = Streams(counted);
    if (open < limit.value) continue;
    return Reached(limit, Limit::kOpenStreams, open, 1);
  }
  ++streams_[caller.owner()];
  ++all_streams_;
  return StreamTicket(this, [this, owner = caller.owner()](const void*) {
    CloseStream(owner);
  });
}

void LimitCheck::CloseStream(const std::string& owner) {
  MutexLock lock(mutex_);
  --all_streams_;
  const auto found = streams_.find(owner);
  if (--found->second == 0) streams_.erase(found);
}

absl::Status LimitCheck::CheckRoom(const Caller& caller,
                                   const std::string& project,
                                   int64_t bytes) const {
  const auto holding = Holding(caller, project, Limit::kDiskBytes);
  return store_->ReadWith(
      [&](Database* db) { return CheckBytes(db, holding, bytes); });
}

absl::Status LimitCheck::CheckBytes(Database* db, const HoldingRows& holding,
                                    int64_t bytes) const {
  for (const auto& [limit, counted] : holding) {
    ASSIGN_OR_RETURN(const int64_t checkpoints,
                     BytesOfCheckpoints(db, counted));
    ASSIGN_OR_RETURN(const int64_t others, other_bytes_(db, counted));
    const int64_t used = checkpoints + others;
    if (used < limit.value && bytes <= limit.value - used) continue;
    return Reached(limit, Limit::kDiskBytes, used, bytes);
  }
  return absl::OkStatus();
}

absl::Status LimitCheck::CheckCount(
    const Caller& caller, Limit limit,
    const std::function<int64_t(const std::string& owner)>& used) const {
  for (const auto& [row, counted] : Holding(caller, "", limit)) {
    const int64_t count = used(counted.owner);
    if (count >= row.value) return Reached(row, limit, count, 1);
  }
  return absl::OkStatus();
}

LimitCheck::MayInsertJob LimitCheck::MayAddJob(
    const Caller& caller, const std::string& project) const {
  return [this, jobs = Holding(caller, project, Limit::kQueuedJobs),
          urgent = Holding(caller, project, Limit::kUrgentJobs),
          room = Holding(caller, project, Limit::kDiskBytes),
          host = Holding(caller, project, Limit::kHostBytes)](
             Database* db, Priority priority,
             uint64_t host_bytes) -> absl::Status {
    RETURN_IF_ERROR(CheckHost(host, host_bytes));
    RETURN_IF_ERROR(CheckJobs(db, Limit::kQueuedJobs, jobs));
    if (priority == Priority::kUrgent) {
      RETURN_IF_ERROR(CheckJobs(db, Limit::kUrgentJobs, urgent));
    }
    return CheckBytes(db, room, 1);
  };
}

MayWrite LimitCheck::MayBeUrgent(const Caller& caller,
                                 const std::string& project) const {
  return [urgent = Holding(caller, project, Limit::kUrgentJobs)](Database* db) {
    return CheckJobs(db, Limit::kUrgentJobs, urgent);
  };
}

absl::Status LimitCheck::CheckHost(const HoldingRows& holding, uint64_t bytes) {
  for (const auto& [limit, counted] : holding) {
    if (bytes <= static_cast<uint64_t>(limit.value)) continue;
    return RequestError(
        absl::StatusCode::kResourceExhausted, FieldReason::kQuota,
        limit.subject,
        absl::StrCat("host_bytes of ", limit.subject, " is ", limit.value,
                     ", and the job needs ", bytes,
                     " alone; an admin changes it with: roundhouse limit set ",
                     limit.subject, " host_bytes VALUE"));
  }
  return absl::OkStatus();
}

absl::Status LimitCheck::CheckJobs(Database* db, Limit name,
                                   const HoldingRows& holding) {
  for (const auto& [limit, counted] : holding) {
    ASSIGN_OR_RETURN(const int64_t used, CountJobs(db, name, counted));
    if (used >= limit.value) return Reached(limit, name, used, 1);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<int64_t>> LimitCheck::Used(
    Limit limit, const Counted& counted) const {
  std::optional<int64_t> used;
  if (limit == Limit::kOpenStreams) {
    MutexLock lock(mutex_);
    return Streams(counted);
  }
  if (limit != Limit::kQueuedJobs && limit != Limit::kUrgentJobs &&
      limit != Limit::kDiskBytes) {
    return used;
  }
  RETURN_IF_ERROR(store_->ReadWith([&](Database* db) -> absl::Status {
    if (limit != Limit::kDiskBytes) {
      ASSIGN_OR_RETURN(used, CountJobs(db, limit, counted));
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const int64_t checkpoints,
                     BytesOfCheckpoints(db, counted));
    ASSIGN_OR_RETURN(const int64_t others, other_bytes_(db, counted));
    used = checkpoints + others;
    return absl::OkStatus();
  }));
  return used;
}

}  // namespace roundhouse
