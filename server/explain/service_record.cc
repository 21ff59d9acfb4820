#include "server/explain/service_record.h"

#include <algorithm>
#include <utility>

namespace roundhouse {
namespace {

constexpr double kSecond = 1e9;
// A share that is less by this is less than fair.
constexpr double kClearlyLess = 0.95;
constexpr double kLeastDevices = 0.01;

double Seconds(int64_t ns) { return static_cast<double>(ns) / kSecond; }

}  // namespace

void ServiceRecord::Add(int64_t now_ns, const std::vector<Job>& jobs,
                        const DeviceTimes& times, int devices,
                        const ShareWeights& weights) {
  Sample now{.at_ns = now_ns, .times = times};
  for (const Job& job : jobs) now.jobs[job.id] = job;
  const bool same =
      devices == same_devices_ && now.jobs.size() == same_since_.jobs.size() &&
      std::equal(now.jobs.begin(), now.jobs.end(), same_since_.jobs.begin(),
                 [](const auto& a, const auto& b) {
                   return a.first == b.first &&
                          a.second.priority == b.second.priority;
                 });
  if (!same) {
    same_since_ = now;
    same_devices_ = devices;
  } else if (now_ns - same_since_.at_ns >= kServiceSettledNs) {
    LearnMost(now, devices, weights);
  }
  // The newest goes as the next comes, unless enough lies between them.
  if (samples_.size() > 1 &&
      samples_.back().at_ns - samples_[samples_.size() - 2].at_ns <
          kServiceSampleNs) {
    samples_.pop_back();
  }
  samples_.push_back(std::move(now));
  while (samples_.front().at_ns < now_ns - kServiceWindowNs) {
    samples_.pop_front();
  }
}

void ServiceRecord::LearnMost(const Sample& now, int devices,
                              const ShareWeights& weights) {
  std::vector<SharingJob> sharing;
  for (const auto& [id, job] : now.jobs) {
    sharing.push_back({job.owner, job.priority});
  }
  const std::vector<double> fair = SharedRates(sharing, devices, weights);
  const double seconds = Seconds(now.at_ns - same_since_.at_ns);
  size_t next = 0;
  for (const auto& [id, job] : now.jobs) {
    const int64_t before = same_since_.jobs.at(id).device_ns;
    const double rate = Seconds(job.device_ns - before) / seconds;
    if (rate < kClearlyLess * fair[next++]) {
      most_devices_[id] = std::max(rate, kLeastDevices);
    } else if (rate > MostDevices(id)) {
      most_devices_.erase(id);
    }
  }
}

ServedJob ServiceRecord::Of(const std::string& id) const {
  if (samples_.empty()) return {};
  const Sample& now = samples_.back();
  const auto last = now.jobs.find(id);
  if (last == now.jobs.end()) return {};
  const auto there = [&id](const Sample& sample) {
    return sample.jobs.contains(id);
  };
  const auto first = std::find_if(samples_.begin(), samples_.end(), there);
  const Job& then = first->jobs.at(id);
  return {.window_seconds = Seconds(now.at_ns - first->at_ns),
          .device_seconds = Seconds(last->second.device_ns - then.device_ns),
          .all_device_seconds =
              Seconds(now.times.compute_ns - first->times.compute_ns),
          .host_seconds = Seconds(last->second.host_ns - then.host_ns)};
}

double ServiceRecord::MostDevices(const std::string& id) const {
  const auto found = most_devices_.find(id);
  return found == most_devices_.end() ? kAnyDevices : found->second;
}

DeviceTimes ServiceRecord::Times() const {
  DeviceTimes times;
  if (samples_.empty()) return times;
  const DeviceTimes& then = samples_.front().times;
  const DeviceTimes& now = samples_.back().times;
  times.compute_ns = now.compute_ns - then.compute_ns;
  times.bubble_ns = now.bubble_ns - then.bubble_ns;
  times.idle_ns = now.idle_ns - then.idle_ns;
  times.fenced_ns = now.fenced_ns - then.fenced_ns;
  for (size_t cause = 0; cause < times.bubble_causes_ns.size(); ++cause) {
    times.bubble_causes_ns[cause] =
        now.bubble_causes_ns[cause] - then.bubble_causes_ns[cause];
  }
  return times;
}

double ServiceRecord::WindowSeconds() const {
  return samples_.empty()
             ? 0
             : Seconds(samples_.back().at_ns - samples_.front().at_ns);
}

}  // namespace roundhouse
