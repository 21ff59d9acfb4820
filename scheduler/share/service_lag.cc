#include "scheduler/share/service_lag.h"

#include <algorithm>
#include <limits>
#include <set>

#include "scheduler/share/parts_by_weight.h"

namespace roundhouse {
namespace {

constexpr double kAll = std::numeric_limits<double>::infinity();

}  // namespace

void ServiceLag::GoTo(int64_t interval) {
  newest_ = std::max(newest_, interval);
  intervals_.erase(intervals_.begin(),
                   intervals_.lower_bound(newest_ - kLagIntervals));
}

void ServiceLag::NoteUse(const JobOwner& owner, int64_t end_ns, int64_t ns) {
  int64_t interval = end_ns / kLagIntervalNs;
  GoTo(interval);
  int64_t end = end_ns;
  for (int64_t left = ns; left > 0 && interval >= newest_ - kLagIntervals;
       --interval) {
    const int64_t begin = interval * kLagIntervalNs;
    const int64_t here = std::min(left, end - begin);
    if (here > 0) {
      intervals_[interval].projects[owner.project][owner.user].had_ns += here;
    }
    left -= here;
    end = begin;
  }
}

void ServiceLag::NoteWaiting(const std::vector<JobOwner>& waiting,
                             int64_t now_ns) {
  const int64_t number = now_ns / kLagIntervalNs;
  GoTo(number);
  if (number < newest_ - kLagIntervals) return;
  Interval& interval = intervals_[number];
  ++interval.looks;
  std::set<Use*> uses;
  for (const JobOwner& owner : waiting) {
    uses.insert(&interval.projects[owner.project][owner.user]);
  }
  for (Use* const use : uses) ++use->looks;
}

bool ServiceLag::Waited(const Use& use, const Interval& interval) {
  return use.looks > 0 && use.looks * 2 >= interval.looks;
}

void ServiceLag::AddLags(const Interval& interval, const ShareWeights& weights,
                         std::map<std::string, double>& lags) {
  std::vector<Claim> projects;
  double total_ns = 0;
  for (const auto& [name, users] : interval.projects) {
    double had_ns = 0;
    bool waited = false;
    for (const auto& [user, use] : users) {
      had_ns += static_cast<double>(use.had_ns);
      waited |= Waited(use, interval);
    }
    projects.push_back({weights.OfProject(name), waited ? kAll : had_ns});
    total_ns += had_ns;
  }
  const std::vector<double> parts = PartsByWeight(total_ns, projects);
  auto part = parts.begin();
  for (const auto& [name, users] : interval.projects) {
    std::vector<Claim> demands;
    for (const auto& [user, use] : users) {
      const auto had_ns = static_cast<double>(use.had_ns);
      demands.push_back(
          {weights.OfUser(user), Waited(use, interval) ? kAll : had_ns});
    }
    const std::vector<double> fair_ns = PartsByWeight(*part++, demands);
    auto fair = fair_ns.begin();
    for (const auto& [user, use] : users) {
      lags[user] += *fair++ - static_cast<double>(use.had_ns);
    }
  }
}

std::map<std::string, double> ServiceLag::LagsNs(
    const ShareWeights& weights) const {
  std::map<std::string, double> lags;
  for (const auto& [number, interval] : intervals_) {
    if (number != newest_) AddLags(interval, weights, lags);
  }
  return lags;
}

}  // namespace roundhouse
