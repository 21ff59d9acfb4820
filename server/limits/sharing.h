// What the table says of how jobs share the server, as the engine takes it:
// weights of device time, and what may be had at a time.
//
// Pure values; thread-safe.
#ifndef ROUNDHOUSE_SERVER_LIMITS_SHARING_H_
#define ROUNDHOUSE_SERVER_LIMITS_SHARING_H_

#include <cstdint>

#include "scheduler/share/fair_shares.h"
#include "scheduler/share/owner_limits.h"
#include "server/limits/limit_check.h"
#include "server/limits/limit_table.h"

namespace roundhouse {

// They hold for admins, too.
struct Sharing {
  ShareWeights weights = {};
  OwnerLimits running = {};     // jobs
  OwnerLimits gpu_hours = {};   // of the last seven days
  OwnerLimits host_bytes = {};  // that running jobs need
};

Sharing SharingOf(const LimitRows& rows);

// What owners have of all that Sharing limits.
struct SharedUse {
  OwnerUse running = {};
  OwnerUse gpu_hours = {};  // whole ones
  OwnerUse host_bytes = {};
};
// What is had of a limit: of a user, a project or, where both are "", of all.
// Nullopt: SharedUse does not have it.
std::optional<int64_t> UseOf(const SharedUse& used, Limit limit,
                             const Counted& counted);
// Whether one more job of the owner may run, that needs these bytes.
bool MayStart(const Sharing& sharing, const JobOwner& owner,
              const SharedUse& used, uint64_t host_bytes);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_LIMITS_SHARING_H_
