#include "server/observe/user_reports.h"

#include <utility>

namespace roundhouse {

void UserReports::AddUse(const DeviceCharge& charge, int64_t now_ns) {
  series_.AddService(charge.owner.user, now_ns, charge.device_ns);
  lag_.NoteUse(charge.owner, now_ns, charge.device_ns);
}

void UserReports::Publish(const Now& now, int64_t now_ns) {
  lag_.NoteWaiting(now.waiting, now_ns);
  const int64_t interval = now_ns / kLagIntervalNs;
  if (std::exchange(interval_, interval) != interval) {
    lags_ns_ = lag_.LagsNs(now.weights);
  }
  std::map<std::string, UserSeries::User> users;
  for (const JobOwner& owner : now.queued) ++users[owner.user].queued;
  for (const JobOwner& owner : now.running) ++users[owner.user].running;
  for (const JobOwner& owner : now.backfill) ++users[owner.user].backfill;
  for (auto& [name, user] : users) {
    const auto lag = lags_ns_.find(name);
    const bool works = user.running + user.backfill > 0;
    if (works && lag != lags_ns_.end()) user.lag_seconds = lag->second * 1e-9;
  }
  series_.Set(users, now_ns);
}

}  // namespace roundhouse
