#include "server/limits/sharing.h"

#include "base/saturating_add.h"

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

const OwnerUse* UseOf(const SharedUse& used, Limit limit) {
  switch (limit) {
    case Limit::kRunningJobs:
      return &used.running;
    case Limit::kGpuHours:
      return &used.gpu_hours;
    case Limit::kHostBytes:
      return &used.host_bytes;
    default:
      return nullptr;
  }
}

int64_t Of(const std::map<std::string, int64_t>& used,
           const std::string& name) {
  const auto found = used.find(name);
  return found == used.end() ? 0 : found->second;
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
  for (int64_t* const sum :
       {&users[owner.user], &projects[owner.project], &all}) {
    *sum = SaturatingAdd(*sum, amount);
  }
}

OwnerUse CountOf(const std::vector<JobOwner>& owners) {
  OwnerUse count;
  for (const JobOwner& owner : owners) count.Add(owner, 1);
  return count;
}

std::optional<int64_t> UseOf(const SharedUse& used, Limit limit,
                             const Counted& counted) {
  const OwnerUse* const use = UseOf(used, limit);
  if (use == nullptr) return std::nullopt;
  if (!counted.owner.empty()) return Of(use->users, counted.owner);
  if (!counted.project.empty()) return Of(use->projects, counted.project);
  return use->all;
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

bool MayStart(const Sharing& sharing, const JobOwner& owner,
              const SharedUse& used, uint64_t host_bytes) {
  return MayHave(sharing.running, owner, used.running, 1) &&
         // Whole hours that are used up: less than one may be left.
         MayHave(sharing.gpu_hours, owner, used.gpu_hours, 1) &&
         MayHave(sharing.host_bytes, owner, used.host_bytes,
                 static_cast<int64_t>(host_bytes));
}

}  // namespace roundhouse
