// What users and projects may have at a time of what they share, and what they
// have of it.
//
// Pure values; thread-safe.
#ifndef ROUNDHOUSE_SCHEDULER_SHARE_OWNER_LIMITS_H_
#define ROUNDHOUSE_SCHEDULER_SHARE_OWNER_LIMITS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/share/fair_shares.h"

namespace roundhouse {

// What owners may have of something; who has no number has no bound.
struct OwnerLimits {
  std::map<std::string, int64_t> users = {};
  std::map<std::string, int64_t> projects = {};
  std::optional<int64_t> other_users;  // of each who is not among `users`
  std::optional<int64_t> all;

  bool empty() const;
};

// What owners have of it.
struct OwnerUse {
  std::map<std::string, int64_t> users = {};
  std::map<std::string, int64_t> projects = {};
  int64_t all = 0;

  // As SaturatingAdd.
  void Add(const JobOwner& owner, int64_t amount);
  // REQUIRES: as much was added for him.
  void Remove(const JobOwner& owner, int64_t amount);
};
// One for each.
OwnerUse CountOf(const std::vector<JobOwner>& owners);

// Whose limit it is that is in the way.
enum class LimitOf { kServer, kProject, kUser, kEachUser };
struct ReachedLimit {
  LimitOf of = LimitOf::kServer;
  int64_t value = 0;
  int64_t used = 0;
};
// The first that lets `owner` not have `more` beside what there is: the
// server's, the project's, the user's.  None: he may.
std::optional<ReachedLimit> FindReached(const OwnerLimits& limits,
                                        const JobOwner& owner,
                                        const OwnerUse& used, int64_t more);
inline bool MayHave(const OwnerLimits& limits, const JobOwner& owner,
                    const OwnerUse& used, int64_t more) {
  return !FindReached(limits, owner, used, more).has_value();
}

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_SHARE_OWNER_LIMITS_H_
