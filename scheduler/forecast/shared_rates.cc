#include "scheduler/forecast/shared_rates.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <string>

#include "scheduler/share/parts_by_weight.h"

namespace roundhouse {
namespace {

using Places = std::vector<size_t>;  // in the list of jobs

struct Group {
  double weight = 1;
  double most = 0;
  Places jobs;
};
using Groups = std::map<std::string, Group>;

Groups GroupBy(const std::vector<SharingJob>& jobs, const Places& places,
               const std::function<const std::string&(const JobOwner&)>& name,
               const std::function<double(const std::string&)>& weight) {
  Groups groups;
  for (const size_t place : places) {
    const std::string& key = name(jobs[place].owner);
    Group& group = groups[key];
    group.weight = weight(key);
    group.most += jobs[place].most_devices;
    group.jobs.push_back(place);
  }
  return groups;
}

std::vector<double> PartsOf(double amount, const Groups& groups) {
  std::vector<Claim> claims;
  for (const auto& [name, group] : groups) {
    claims.push_back({group.weight, group.most});
  }
  return PartsByWeight(amount, claims);
}

void ShareAmongJobs(const std::vector<SharingJob>& jobs, const Places& places,
                    double amount, std::vector<double>& rates) {
  std::vector<Claim> claims;
  for (const size_t place : places) {
    claims.push_back({1, jobs[place].most_devices});
  }
  const std::vector<double> parts = PartsByWeight(amount, claims);
  for (size_t i = 0; i < places.size(); ++i) rates[places[i]] = parts[i];
}

void ShareAmongProjects(const std::vector<SharingJob>& jobs,
                        const Places& places, double amount,
                        const ShareWeights& weights,
                        std::vector<double>& rates) {
  const Groups projects = GroupBy(
      jobs, places,
      [](const JobOwner& owner) -> const std::string& { return owner.project; },
      [&](const std::string& name) { return weights.OfProject(name); });
  const std::vector<double> of_project = PartsOf(amount, projects);
  size_t p = 0;
  for (const auto& [project, in_project] : projects) {
    const Groups users = GroupBy(
        jobs, in_project.jobs,
        [](const JobOwner& owner) -> const std::string& { return owner.user; },
        [&](const std::string& name) { return weights.OfUser(name); });
    const std::vector<double> of_user = PartsOf(of_project[p++], users);
    size_t u = 0;
    for (const auto& [user, group] : users) {
      ShareAmongJobs(jobs, group.jobs, of_user[u++], rates);
    }
  }
}

}  // namespace

std::vector<double> SharedRates(const std::vector<SharingJob>& jobs,
                                double devices, const ShareWeights& weights) {
  std::vector<double> rates(jobs.size());
  for (const Priority priority : kPriorities) {
    Places places;
    for (size_t i = 0; i < jobs.size(); ++i) {
      if (jobs[i].priority == priority) places.push_back(i);
    }
    ShareAmongProjects(jobs, places, devices, weights, rates);
    for (const size_t place : places) devices -= rates[place];
    devices = std::max(0.0, devices);
  }
  return rates;
}

}  // namespace roundhouse
