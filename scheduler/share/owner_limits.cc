#include "scheduler/share/owner_limits.h"

#include "base/saturating_add.h"

namespace roundhouse {
namespace {

// What `numbers` say of the name; else `otherwise`.
template <typename Number>
Number Of(const std::map<std::string, int64_t>& numbers,
          const std::string& name, Number otherwise) {
  const auto found = numbers.find(name);
  return found == numbers.end() ? otherwise : Number(found->second);
}

}  // namespace

bool OwnerLimits::empty() const {
  return users.empty() && projects.empty() && !other_users.has_value() &&
         !all.has_value();
}

void OwnerUse::Add(const JobOwner& owner, int64_t amount) {
  for (int64_t* const sum :
       {&users[owner.user], &projects[owner.project], &all}) {
    *sum = SaturatingAdd(*sum, amount);
  }
}

void OwnerUse::Remove(const JobOwner& owner, int64_t amount) {
  users[owner.user] -= amount;
  projects[owner.project] -= amount;
  all -= amount;
}

OwnerUse CountOf(const std::vector<JobOwner>& owners) {
  OwnerUse count;
  for (const JobOwner& owner : owners) count.Add(owner, 1);
  return count;
}

std::optional<ReachedLimit> FindReached(const OwnerLimits& limits,
                                        const JobOwner& owner,
                                        const OwnerUse& used, int64_t more) {
  using Bound = std::optional<int64_t>;
  struct Level {
    LimitOf of;
    Bound most;
    int64_t has;
  };
  const Level levels[] = {
      {LimitOf::kServer, limits.all, used.all},
      {LimitOf::kProject, Of(limits.projects, owner.project, Bound()),
       Of(used.projects, owner.project, int64_t{0})},
      {limits.users.contains(owner.user) ? LimitOf::kUser : LimitOf::kEachUser,
       Of(limits.users, owner.user, limits.other_users),
       Of(used.users, owner.user, int64_t{0})}};
  for (const Level& level : levels) {
    const bool within =
        !level.most.has_value() ||
        (level.has <= *level.most && more <= *level.most - level.has);
    if (!within) return ReachedLimit{level.of, *level.most, level.has};
  }
  return std::nullopt;
}

}  // namespace roundhouse
