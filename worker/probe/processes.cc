#include "worker/probe/processes.h"

#include <poll.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/wire/gpu_processes.h"
#include "worker/probe/probe.h"
#include "worker/probe/process_facts.h"

namespace roundhouse::worker {
namespace {

constexpr int kBetweenLooksMs = 1000;
constexpr unsigned int kMostProcesses = 1024;
constexpr unsigned int kMostSamples = 4096;
constexpr unsigned long long kMostBytes = 1ULL << 50;

using ProcessList = NvmlResult (*)(NvmlDevice, unsigned int*, NvmlProcess*);

class GpuWatcher {
 public:
  GpuWatcher(const NvmlFunctions& nvml, NvmlDevice device, std::string uuid)
      : nvml_(nvml), device_(device), uuid_(std::move(uuid)) {}

  wire::GpuProcesses Look(pid_t but);

 private:
  enum class Use { kComputes, kDraws };
  NvmlResult Add(ProcessList list, Use use);
  // Nullopt: the driver does not say.  Busiest per cent by process.
  std::optional<std::map<uint32_t, uint32_t>> TakeUse();
  void LeaveOutOwn(pid_t but);
  std::vector<wire::GpuProcess> Largest() const;

  const NvmlFunctions& nvml_;
  NvmlDevice device_;
  std::string uuid_;
  std::map<uint32_t, wire::GpuProcess> processes_;
  unsigned long long last_sample_ = 0;
};

NvmlResult GpuWatcher::Add(ProcessList list, Use use) {
  std::vector<NvmlProcess> found(kMostProcesses);
  unsigned int count = kMostProcesses;
  const NvmlResult result = list(device_, &count, found.data());
  if (result != kNvmlSuccess) return result;
  for (unsigned int i = 0; i < std::min(count, kMostProcesses); ++i) {
    if (found[i].pid == 0 || found[i].pid > INT32_MAX) continue;
    wire::GpuProcess& process = processes_[found[i].pid];
    process.pid = found[i].pid;
    process.compute |= use == Use::kComputes;
    if (found[i].memory <= kMostBytes) {
      process.memory_bytes =
          std::max<uint64_t>(process.memory_bytes.value_or(0), found[i].memory);
    }
  }
  return result;
}

std::optional<std::map<uint32_t, uint32_t>> GpuWatcher::TakeUse() {
  if (nvml_.process_use == nullptr) return std::nullopt;
  std::vector<NvmlProcessUse> samples(kMostSamples);
  unsigned int count = kMostSamples;
  const NvmlResult result =
      nvml_.process_use(device_, samples.data(), &count, last_sample_);
  std::map<uint32_t, uint32_t> use;
  if (result == kNvmlNotFound) return use;  // nobody computed
  if (result != kNvmlSuccess) return std::nullopt;
  for (unsigned int i = 0; i < std::min(count, kMostSamples); ++i) {
    last_sample_ = std::max(last_sample_, samples[i].time);
    uint32_t& percent = use[samples[i].pid];
    percent = std::max(percent, std::min(samples[i].sm, 100u));
  }
  return use;
}

// Nor does one count that has ended since: the driver tells of it a while yet.
void GpuWatcher::LeaveOutOwn(pid_t but) {
  for (auto at = processes_.begin(); at != processes_.end();) {
    const auto pid = static_cast<pid_t>(at->first);
    const std::optional<ProcessFacts> facts = FactsOf(pid);
    if (!facts.has_value() || DescendsFrom(pid, but)) {
      at = processes_.erase(at);
      continue;
    }
    if (facts->uid.has_value()) at->second.uid = *facts->uid;
    at->second.name = wire::NameOfProcess(facts->name);
    ++at;
  }
}

std::vector<wire::GpuProcess> GpuWatcher::Largest() const {
  std::vector<wire::GpuProcess> all;
  for (const auto& [pid, process] : processes_) all.push_back(process);
  if (all.size() <= wire::kMaxGpuProcesses) return all;
  const auto weight = [](const wire::GpuProcess& process) {
    return std::make_tuple(process.compute, process.busy_percent.value_or(0),
                           process.memory_bytes.value_or(0));
  };
  std::stable_sort(all.begin(), all.end(), [&](const auto& a, const auto& b) {
    return weight(a) > weight(b);
  });
  all.resize(wire::kMaxGpuProcesses);
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return a.pid < b.pid; });
  return all;
}

wire::GpuProcesses GpuWatcher::Look(pid_t but) {
  wire::GpuProcesses look{.uuid = uuid_};
  processes_.clear();
  const NvmlResult asked = Add(nvml_.compute_processes, Use::kComputes);
  if (asked != kNvmlSuccess) {
    look.fault = asked == kNvmlInsufficientSize
                     ? absl::StrCat("more than ", kMostProcesses)
                     : DriverText(nvml_.error_string(asked));
    return look;
  }
  if (nvml_.graphics_processes != nullptr) {
    Add(nvml_.graphics_processes, Use::kDraws);
  }
  if (const auto use = TakeUse(); use.has_value()) {
    for (auto& [pid, process] : processes_) {
      const auto found = use->find(pid);
      process.busy_percent = found == use->end() ? 0 : found->second;
    }
  }
  LeaveOutOwn(but);
  NvmlMemory memory = {};
  if (nvml_.device_memory != nullptr &&
      nvml_.device_memory(device_, &memory) == kNvmlSuccess &&
      memory.total <= kMostBytes) {
    look.memory_bytes = memory.total;
  }
  look.processes = Largest();
  return look;
}

std::vector<GpuWatcher> WatchersOfAll(const NvmlFunctions& nvml,
                                      unsigned int count) {
  std::vector<GpuWatcher> all;
  for (unsigned int i = 0; i < count; ++i) {
    NvmlDevice device = nullptr;
    char uuid[kNvmlTextBytes] = {};
    if (nvml.device_handle(i, &device) == kNvmlSuccess &&
        nvml.device_uuid(device, uuid, sizeof(uuid)) == kNvmlSuccess) {
      all.emplace_back(nvml, device, DriverText(uuid));
    }
  }
  return all;
}

}  // namespace

absl::Status WatchProcesses(
    const NvmlFunctions& nvml, const ProcessWatchOptions& options,
    const std::function<absl::Status(const std::string& line)>& write) {
  if (nvml.compute_processes == nullptr) {
    return absl::FailedPreconditionError(
        "the driver's NVML has no nvmlDeviceGetComputeRunningProcesses_v3");
  }
  RETURN_IF_ERROR(StatusOf(nvml, "nvmlInit", nvml.init()));
  unsigned int count = 0;
  RETURN_IF_ERROR(
      StatusOf(nvml, "nvmlDeviceGetCount", nvml.device_count(&count)));
  std::vector<GpuWatcher> gpus = WatchersOfAll(nvml, count);
  if (gpus.empty()) return absl::InternalError("no GPU answers");
  RETURN_IF_ERROR(write(wire::kGpuProcessesBegin));
  for (int look = 1;; ++look) {
    for (GpuWatcher& gpu : gpus) {
      RETURN_IF_ERROR(write(wire::EncodeGpuProcesses(gpu.Look(options.but))));
    }
    if (look == options.looks) return absl::OkStatus();
    poll(nullptr, 0, kBetweenLooksMs);
  }
}

}  // namespace roundhouse::worker
