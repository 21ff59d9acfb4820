// What the table says of how jobs share the server, as the engine takes it:
// weights of device time, and how many may run.
//
// Pure values; thread-safe.
#ifndef ROUNDHOUSE_SERVER_LIMITS_SHARING_H_
#define ROUNDHOUSE_SERVER_LIMITS_SHARING_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/share/fair_shares.h"
#include "server/limits/limit_table.h"

namespace roundhouse {

// How many jobs may run at a time; who has no number has no bound.
struct RunningLimits {
  std::map<std::string, int64_t> users = {};
  std::map<std::string, int64_t> projects = {};
  std::optional<int64_t> other_users;  // of each who is not among `users`
  std::optional<int64_t> all;
};

struct Sharing {
  ShareWeights weights = {};
  RunningLimits running = {};
};

Sharing SharingOf(const LimitRows& rows);

// Whether a job of `owner` may run beside those of `running`.
bool MayRun(const RunningLimits& limits, const JobOwner& owner,
            const std::vector<JobOwner>& running);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_LIMITS_SHARING_H_
