#include "server/usage/recent_use.h"

#include <algorithm>
#include <cmath>

namespace roundhouse {
namespace {

// 2 ^ this is a double, whatever the clock says.
constexpr double kMostHalfLives = 900;

}  // namespace

void RecentUse::Add(const JobOwner& owner, int64_t hour, int64_t device_ns) {
  if (!first_hour_.has_value()) first_hour_ = hour;
  const double half_lives =
      static_cast<double>(hour - *first_hour_) / kHalfLifeHours;
  const double counts =
      std::exp2(std::clamp(half_lives, -kMostHalfLives, kMostHalfLives)) *
      static_cast<double>(device_ns);
  projects_[owner.project] += counts;
  users_[{owner.project, owner.user}] += counts;
}

double RecentUse::OfProject(const std::string& project) const {
  const auto found = projects_.find(project);
  return found == projects_.end() ? 0 : found->second;
}

double RecentUse::OfUser(const JobOwner& owner) const {
  const auto found = users_.find({owner.project, owner.user});
  return found == users_.end() ? 0 : found->second;
}

}  // namespace roundhouse
