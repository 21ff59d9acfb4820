// What users and projects had of the devices lately, for who decides whose job
// starts next: device time that counts half as much after every seven days.
//
//   sum over hours of device time * 2 ^ (hour / 168)
//
// All of it grows old at the same rate, which changes no comparison.  So sums
// only rise, and only by what is added: whoever uses nothing keeps his place.
//
// Beside that it has what each used in the last seven days, hour by hour.
//
// Pure; thread-compatible.
#ifndef ROUNDHOUSE_SERVER_USAGE_RECENT_USE_H_
#define ROUNDHOUSE_SERVER_USAGE_RECENT_USE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "scheduler/share/fair_shares.h"

namespace roundhouse {

inline constexpr int64_t kHalfLifeHours = 7 * 24;

class RecentUse {
 public:
  // In an hour since the epoch.
  void Add(const JobOwner& owner, int64_t hour, int64_t device_ns);

  // In a unit of its own: they compare with each other, at one time.
  double OfProject(const std::string& project) const;
  // In that project.
  double OfUser(const JobOwner& owner) const;

  // What a nanosecond that is used now counts in that unit.
  double PerNs() const;

  // Nanoseconds in the hour of the last GoTo and the 167 before it, by project
  // and user.
  using Week = std::map<std::pair<std::string, std::string>, double>;
  const Week& week_ns() const { return week_ns_; }
  // It is this hour now.  True: what was used before is gone from the week.
  bool GoTo(int64_t hour);

 private:
  std::optional<int64_t> first_hour_;  // device time counts once there
  int64_t last_hour_ = 0;              // that was added or gone to
  std::map<std::string, double> projects_;
  std::map<std::pair<std::string, std::string>, double> users_;
  std::map<int64_t, Week> hours_;  // that the week has
  Week week_ns_;                   // their sum
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_USAGE_RECENT_USE_H_
