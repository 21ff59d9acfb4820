// The series of users (docs/metrics.md): what each had of the devices, what he
// is owed, and his jobs.
//
// They are bounded: the first kMaxUsersWithMetrics have series of their own,
// what the others have is summed as the user "other".  A user's series go once
// he has had no job in queue or running, and used nothing, for an hour, which
// makes room for another.  His counter begins at 0 when he comes back.
//
// One thread sets, any thread may scrape.
#ifndef ROUNDHOUSE_SERVER_OBSERVE_USER_SERIES_H_
#define ROUNDHOUSE_SERVER_OBSERVE_USER_SERIES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "prometheus/registry.h"
#include "server/observe/metric_families.h"

namespace roundhouse {

inline constexpr size_t kMaxUsersWithMetrics = 64;
inline constexpr absl::Duration kUserSeriesKept = absl::Hours(1);
// Who has this name has his series together with those who have none.
inline constexpr char kOtherUsers[] = "other";

class UserSeries {
 public:
  explicit UserSeries(prometheus::Registry& registry) : families_(registry) {}

  // Devices computed for the user.  Times are of the monotonic clock.
  void AddService(const std::string& user, int64_t now_ns, int64_t ns);

  struct User {
    int64_t queued = 0;    // jobs that wait to start
    int64_t running = 0;   // that have steps to compute, but for those
    int64_t backfill = 0;  // of this class
    double lag_seconds = 0;
  };
  // All who have a job; the others have none, and are owed nothing.
  void Set(const std::map<std::string, User>& users, int64_t now_ns);

 private:
  struct Series {
    prometheus::Counter* service;
    prometheus::Gauge* lag;
    prometheus::Gauge* queued;
    prometheus::Gauge* running;
    prometheus::Gauge* backfill;
    int64_t seen_ns = 0;  // with a job or computation
  };

  // Where the user's values go, seen now.
  Series& Find(const std::string& user, int64_t now_ns);
  Series& Make(const std::string& user);
  static void Put(const User& user, Series& series);
  void Drop(const Series& series);

  UserFamilies families_;
  std::map<std::string, Series> series_;  // kOtherUsers among them
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_OBSERVE_USER_SERIES_H_
