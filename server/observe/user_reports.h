// What is known of users: what devices computed for them, by how much they are
// behind their fair share (scheduler/share/service_lag.h), and their jobs.
//
// Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_OBSERVE_USER_REPORTS_H_
#define ROUNDHOUSE_SERVER_OBSERVE_USER_REPORTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "scheduler/dispatch/dispatcher.h"
#include "scheduler/share/fair_shares.h"
#include "scheduler/share/service_lag.h"
#include "server/observe/metrics.h"
#include "server/observe/user_series.h"

namespace roundhouse {

class UserReports {
 public:
  explicit UserReports(ServerMetrics& metrics) : series_(metrics.users()) {}

  // All that the dispatcher charges.
  void AddUse(const DeviceCharge& charge, int64_t now_ns);

  // Owners once for each job.
  struct Now {
    std::vector<JobOwner> queued;  // waits to start
    // Has steps to compute, but for those of class backfill, who are owed
    // nothing.
    std::vector<JobOwner> running;
    std::vector<JobOwner> backfill;
    std::vector<JobOwner> waiting;  // Dispatcher::Waiting
    const ShareWeights& weights;
  };
  // Brings metrics up to date; to be called once a second.
  void Publish(const Now& now, int64_t now_ns);

 private:
  UserSeries& series_;
  ServiceLag lag_;
  std::map<std::string, double> lags_ns_;  // of the intervals that are over
  int64_t interval_ = 0;                   // in which they were found
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_OBSERVE_USER_REPORTS_H_
