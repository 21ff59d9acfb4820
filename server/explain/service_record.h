// What running jobs had of the devices in the last minutes, and how many
// devices each can keep busy.
//
// Whoever had less than his fair share for a while, with nobody coming or
// going, can't use more: that is what he keeps busy.  Of one who had all of it
// nothing is known but that it was so much.
//
// Thread-compatible.
#ifndef ROUNDHOUSE_SERVER_EXPLAIN_SERVICE_RECORD_H_
#define ROUNDHOUSE_SERVER_EXPLAIN_SERVICE_RECORD_H_

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "scheduler/forecast/shared_rates.h"
#include "scheduler/share/fair_shares.h"
#include "server/explain/pool_snapshot.h"
#include "server/observe/device_ledger.h"

namespace roundhouse {

inline constexpr int64_t kServiceWindowNs = int64_t{300} * 1'000'000'000;
// Between two samples that are kept, and before a rate is believed.
inline constexpr int64_t kServiceSampleNs = int64_t{5} * 1'000'000'000;
inline constexpr int64_t kServiceSettledNs = int64_t{10} * 1'000'000'000;

class ServiceRecord {
 public:
  // A job that has steps now; times are since it began to.
  struct Job {
    std::string id;
    JobOwner owner;
    Priority priority = Priority::kNormal;
    int64_t device_ns = 0;
    int64_t host_ns = 0;
  };
  // All that there is at a time; to be called once a second.
  void Add(int64_t now_ns, const std::vector<Job>& jobs,
           const DeviceTimes& times, int devices, const ShareWeights& weights);
  // It runs no more.
  void Forget(const std::string& id) { most_devices_.erase(id); }

  // All 0 of one that was never there.
  ServedJob Of(const std::string& id) const;
  double MostDevices(const std::string& id) const;
  // What devices did in the window, and how long that is.
  DeviceTimes Times() const;
  double WindowSeconds() const;

 private:
  struct Sample {
    int64_t at_ns = 0;
    DeviceTimes times;
    std::map<std::string, Job> jobs;
  };

  void LearnMost(const Sample& now, int devices, const ShareWeights& weights);

  std::deque<Sample> samples_;  // the last is the newest, and may go
  Sample same_since_;           // the jobs and the devices are the same
  int same_devices_ = 0;
  std::map<std::string, double> most_devices_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_EXPLAIN_SERVICE_RECORD_H_
