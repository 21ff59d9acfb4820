#include "server/devices/yield_policy.h"

namespace roundhouse {
namespace {

bool HasMuchMemory(const wire::GpuProcess& process,
                   const wire::GpuProcesses& gpu) {
  if (!gpu.memory_bytes.has_value()) return false;
  return static_cast<double>(process.memory_bytes.value_or(0)) >
         kYieldMemoryShare * static_cast<double>(*gpu.memory_bytes);
}

}  // namespace

bool TakesGpu(const wire::GpuProcess& process, const wire::GpuProcesses& gpu) {
  const bool computes = process.compute && process.busy_percent.value_or(1) > 0;
  return computes || HasMuchMemory(process, gpu);
}

void YieldPolicy::ForgetThoseWhoLeft(const wire::GpuProcesses& gpu) {
  there_.clear();
  for (const wire::GpuProcess& process : gpu.processes) {
    there_.insert(process.pid);
    const bool stays = process.compute || HasMuchMemory(process, gpu);
    if (!stays) takers_.erase(process.pid);
  }
  std::erase_if(takers_, [this](const auto& taker) {
    return there_.count(taker.first) == 0;
  });
  std::erase_if(forgiven_,
                [this](uint32_t pid) { return there_.count(pid) == 0; });
}

void YieldPolicy::See(const wire::GpuProcesses& gpu, int64_t now_ns) {
  if (!gpu.fault.empty()) return;
  ForgetThoseWhoLeft(gpu);
  for (const wire::GpuProcess& process : gpu.processes) {
    const bool counts = forgiven_.count(process.pid) == 0;
    if (counts && TakesGpu(process, gpu)) takers_[process.pid] = process;
  }
  if (!takers_.empty()) {
    taker_ = takers_.begin()->second;
    left_ns_.reset();
    return;
  }
  if (!taker_.has_value()) return;
  if (!left_ns_.has_value()) left_ns_ = now_ns;
  if (now_ns - *left_ns_ >= absl::ToInt64Nanoseconds(back_after_)) {
    taker_.reset();
  }
}

void YieldPolicy::Forgive() {
  forgiven_ = there_;
  takers_.clear();
  taker_.reset();
  left_ns_.reset();
}

}  // namespace roundhouse
