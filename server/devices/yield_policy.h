// Decides whether a device is to be left to processes that are not ours, from
// what the driver tells of its GPU's processes (base/wire/gpu_processes.h).
//
// A process takes the GPU that computes on it, or has more than
// kYieldMemoryShare of its memory.  One computes that has a context for
// computing and was busy since the last look; where the driver does not say who
// is busy, each with such a context does.  One that only draws takes the GPU
// for as long as it has so much memory; any other until it has left the GPU.
// Once the last has, the device is left to them for a time more.
//
// One a device.  Pure; thread-compatible.
#ifndef ROUNDHOUSE_SERVER_DEVICES_YIELD_POLICY_H_
#define ROUNDHOUSE_SERVER_DEVICES_YIELD_POLICY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "absl/time/time.h"
#include "base/wire/gpu_processes.h"

namespace roundhouse {

inline constexpr double kYieldMemoryShare = 0.1;
inline constexpr absl::Duration kYieldBackAfter = absl::Minutes(1);

// Whether the process takes the GPU.
bool TakesGpu(const wire::GpuProcess& process, const wire::GpuProcesses& gpu);

class YieldPolicy {
 public:
  explicit YieldPolicy(absl::Duration back_after) : back_after_(back_after) {}

  // What is on the device's GPU as of `now_ns` of a monotonic clock, which does
  // not fall.  A look that failed changes nothing.
  void See(const wire::GpuProcesses& gpu, int64_t now_ns);
  // Whoever is on the GPU does not count from now on, until he has left it; the
  // device is taken back.
  void Forgive();

  // To whom the device is left: the one with the lowest id of those that took
  // it, or the last one that has.  Nullopt: nobody.
  const std::optional<wire::GpuProcess>& taker() const { return taker_; }

 private:
  void ForgetThoseWhoLeft(const wire::GpuProcesses& gpu);

  const absl::Duration back_after_;
  std::map<uint32_t, wire::GpuProcess> takers_;  // that are there
  std::set<uint32_t> there_;                     // at the last look
  std::set<uint32_t> forgiven_;                  // of those
  std::optional<wire::GpuProcess> taker_;
  std::optional<int64_t> left_ns_;  // since when there are no takers
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DEVICES_YIELD_POLICY_H_
