#include "server/observe/user_series.h"

#include <algorithm>
#include <set>

namespace roundhouse {

UserSeries::Series& UserSeries::Make(const std::string& user) {
  return series_
      .try_emplace(user,
                   Series{.service = &families_.service.Add({{"user", user}}),
                          .lag = &families_.lag.Add({{"user", user}}),
                          .queued = &families_.jobs.Add(
                              {{"user", user}, {"state", "queued"}}),
                          .running = &families_.jobs.Add(
                              {{"user", user}, {"state", "running"}}),
                          .backfill = &families_.jobs.Add(
                              {{"user", user}, {"state", "backfill"}})})
      .first->second;
}

UserSeries::Series& UserSeries::Find(const std::string& user, int64_t now_ns) {
  const bool known = series_.contains(user);
  const size_t own = series_.size() - series_.count(kOtherUsers);
  const bool room = own < kMaxUsersWithMetrics;
  Series& series = Make(known || room ? user : std::string(kOtherUsers));
  series.seen_ns = now_ns;
  return series;
}

void UserSeries::AddService(const std::string& user, int64_t now_ns,
                            int64_t ns) {
  // What workers say is not checked.
  Find(user, now_ns)
      .service->Increment(static_cast<double>(std::max<int64_t>(0, ns)) * 1e-9);
}

void UserSeries::Put(const User& user, Series& series) {
  series.queued->Set(static_cast<double>(user.queued));
  series.running->Set(static_cast<double>(user.running));
  series.backfill->Set(static_cast<double>(user.backfill));
  series.lag->Set(user.lag_seconds);
}

void UserSeries::Set(const std::map<std::string, User>& users, int64_t now_ns) {
  std::map<Series*, User> now;
  for (const auto& [name, user] : users) {
    User& sum = now[&Find(name, now_ns)];
    sum.queued += user.queued;
    sum.running += user.running;
    sum.backfill += user.backfill;
    sum.lag_seconds += user.lag_seconds;
  }
  for (auto& [name, series] : series_) {
    const auto found = now.find(&series);
    Put(found == now.end() ? User() : found->second, series);
  }
  const int64_t kept_ns = absl::ToInt64Nanoseconds(kUserSeriesKept);
  std::erase_if(series_, [&](const auto& entry) {
    const Series& series = entry.second;
    if (now_ns - series.seen_ns < kept_ns) return false;
    Drop(series);
    return true;
  });
}

void UserSeries::Drop(const Series& series) {
  families_.service.Remove(series.service);
  families_.lag.Remove(series.lag);
  families_.jobs.Remove(series.queued);
  families_.jobs.Remove(series.running);
  families_.jobs.Remove(series.backfill);
}

}  // namespace roundhouse
