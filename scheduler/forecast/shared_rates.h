// How fast jobs go that share a pool of devices, if device time were a fluid:
// what FairShares (scheduler/share) gives them on average.
//
// Each class gets what those before it leave (base/priority.h).  Of that
// projects get device time by their weights, users that of their project, jobs
// that of their user in equal parts; what one can't use the others get.
//
// Pure; thread-safe.
#ifndef ROUNDHOUSE_SCHEDULER_FORECAST_SHARED_RATES_H_
#define ROUNDHOUSE_SCHEDULER_FORECAST_SHARED_RATES_H_

#include <limits>
#include <vector>

#include "base/priority.h"
#include "scheduler/share/fair_shares.h"

namespace roundhouse {

inline constexpr double kAnyDevices = std::numeric_limits<double>::infinity();

struct SharingJob {
  JobOwner owner;
  Priority priority = Priority::kNormal;
  double most_devices = kAnyDevices;  // that it can keep busy; not below 0
};

// Device-seconds a second of each job, on so many devices.
std::vector<double> SharedRates(const std::vector<SharingJob>& jobs,
                                double devices, const ShareWeights& weights);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_FORECAST_SHARED_RATES_H_
