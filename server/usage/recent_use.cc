#include "server/usage/recent_use.h"

#include <algorithm>
#include <cmath>

namespace roundhouse {
namespace {

// 2 ^ this is a double, whatever the clock says.
constexpr double kMostHalfLives = 900;

// What a nanosecond counts so many hours after the first one.
double CountsAfter(int64_t hours) {
  const double half_lives = static_cast<double>(hours) / kHalfLifeHours;
  return std::exp2(std::clamp(half_lives, -kMostHalfLives, kMostHalfLives));
}

}  // namespace

void RecentUse::Add(const JobOwner& owner, int64_t hour, int64_t device_ns) {
  if (!first_hour_.has_value()) first_hour_ = hour;
  last_hour_ = hour;
  const double counts =
      CountsAfter(hour - *first_hour_) * static_cast<double>(device_ns);
  projects_[owner.project] += counts;
  users_[{owner.project, owner.user}] += counts;
  const auto ns = static_cast<double>(device_ns);
  hours_[hour][{owner.project, owner.user}] += ns;
  week_ns_[{owner.project, owner.user}] += ns;
}

double RecentUse::PerNs() const {
  return first_hour_.has_value() ? CountsAfter(last_hour_ - *first_hour_) : 1;
}

bool RecentUse::GoTo(int64_t hour) {
  last_hour_ = hour;
  const size_t gone = std::erase_if(hours_, [hour](const auto& entry) {
    return entry.first <= hour - kHalfLifeHours;
  });
  if (gone == 0) return false;
  week_ns_.clear();
  for (const auto& [past, used] : hours_) {
    for (const auto& [owner, ns] : used) week_ns_[owner] += ns;
  }
  return true;
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
