#include "server/limits/sharing.h"

#include <string>

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

std::optional<int64_t> UseOf(const SharedUse& used, Limit limit,
                             const Counted& counted) {
  const OwnerUse* const use = UseOf(used, limit);
  if (use == nullptr) return std::nullopt;
  if (!counted.owner.empty()) return Of(use->users, counted.owner);
  if (!counted.project.empty()) return Of(use->projects, counted.project);
  return use->all;
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
