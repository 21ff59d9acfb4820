#include "server/limits/sharing.h"

#include <algorithm>

namespace roundhouse {
namespace {

// ShareWeights or RunningLimits; a server's row is the latter's alone.
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

}  // namespace

Sharing SharingOf(const LimitRows& rows) {
  Sharing sharing;
  for (const auto& [key, value] : rows.values) {
    const auto subject = ParseLimitSubject(key.second);
    if (!subject.ok()) continue;
    if (key.first == Limit::kShare) {
      Put(*subject, static_cast<double>(value), sharing.weights);
    } else if (key.first != Limit::kRunningJobs) {
      continue;
    } else if (subject->text == kServer) {
      sharing.running.all = value;
    } else {
      Put(*subject, value, sharing.running);
    }
  }
  return sharing;
}

bool MayRun(const RunningLimits& limits, const JobOwner& owner,
            const std::vector<JobOwner>& running) {
  const auto below = [&running](std::optional<int64_t> most, auto counts) {
    return !most.has_value() ||
           std::count_if(running.begin(), running.end(), counts) < *most;
  };
  return below(limits.all, [](const JobOwner&) { return true; }) &&
         below(LimitOf(limits.projects, owner.project, std::nullopt),
               [&owner](const JobOwner& one) {
                 return one.project == owner.project;
               }) &&
         below(
             LimitOf(limits.users, owner.user, limits.other_users),
             [&owner](const JobOwner& one) { return one.user == owner.user; });
}

}  // namespace roundhouse
