#include "server/limits/sharing.h"

#include <algorithm>
#include <limits>

namespace roundhouse {
namespace {

// ShareWeights or OwnerLimits; a server's row is the latter's alone.
template <typename Numbers, typename Number>
void Put(const LimitSubject& subject, Number value, Numbers& numbers) {
  if (!subject.project.empty()) {
    numbers.projects[subject.project] = value;
  } else if (!subject.user.empty()) {
    numbers.users[subject.user] = value;
  } else {
    numbers.other_users = value;
  }
}

// What `limits` say of the name; else `otherwise`.
std::optional<int64_t> LimitOf(const std::map<std::string, int64_t>& limits,
                               const std::string& name,
                               std::optional<int64_t> otherwise) {
  const auto found = limits.find(name);
  return found == limits.end() ? otherwise : found->second;
}

// The limits that rows of this kind make; null: they make none.
OwnerLimits* LimitsOf(Limit limit, Sharing& sharing) {
  switch (limit) {
    case Limit::kRunningJobs:
      return &sharing.running;
    case Limit::kGpuHours:
      return &sharing.gpu_hours;
    case Limit::kHostBytes:
      return &sharing.host_bytes;
    default:
      return nullptr;
  }
}

int64_t Of(const std::map<std::string, int64_t>& used,
           const std::string& name) {
  const auto found = used.find(name);
  return found == used.end() ? 0 : found->second;
}

void AddTo(int64_t& sum, int64_t amount) {
  sum += std::min(amount, std::numeric_limits<int64_t>::max() - sum);
}

}  // namespace

bool OwnerLimits::empty() const {
  return users.empty() && projects.empty() && !other_users.has_value() &&
         !all.has_value();
}

Sharing SharingOf(const LimitRows& rows) {
  Sharing sharing;
  for (const auto& [key, value] : rows.values) {
    const auto subject = ParseLimitSubject(key.second);
    if (!subject.ok()) continue;
    OwnerLimits* const limits = LimitsOf(key.first, sharing);
    if (key.first == Limit::kShare) {
      Put(*subject, static_cast<double>(value), sharing.weights);
    } else if (limits == nullptr) {
      continue;
    } else if (subject->text == kServer) {
      limits->all = value;
    } else {
      Put(*subject, value, *limits);
    }
  }
  return sharing;
}

void OwnerUse::Add(const JobOwner& owner, int64_t amount) {
  AddTo(users[owner.user], amount);
  AddTo(projects[owner.project], amount);
  AddTo(all, amount);
}

OwnerUse CountOf(const std::vector<JobOwner>& owners) {
  OwnerUse count;
  for (const JobOwner& owner : owners) count.Add(owner, 1);
  return count;
}

bool MayHave(const OwnerLimits& limits, const JobOwner& owner,
             const OwnerUse& used, int64_t more) {
  const auto within = [more](std::optional<int64_t> most, int64_t has) {
    return !most.has_value() || (has <= *most && more <= *most - has);
  };
  return within(limits.all, used.all) &&
         within(LimitOf(limits.projects, owner.project, std::nullopt),
                Of(used.projects, owner.project)) &&
         within(LimitOf(limits.users, owner.user, limits.other_users),
                Of(used.users, owner.user));
}

}  // namespace roundhouse
