#include "server/yielding.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "server/devices/yield_policy.h"

namespace roundhouse {
namespace {

// The UUID of each device's GPU, from the devices' keys.
std::vector<std::string> UuidsOf(std::vector<std::string> keys) {
  for (std::string& key : keys) key = key.substr(0, key.find('#'));
  return keys;
}

}  // namespace

Yielding::Yielding(const DaemonOptions& options)
    : enabled_(options.yield.choice == YieldOptions::Choice::kPretended ||
               (options.yield.choice == YieldOptions::Choice::kAuto &&
                options.gpus.has_value())),
      back_after_(options.yield.back_after),
      probe_({options.gpu_probe, options.gpu_probe_limit}) {}

absl::StatusOr<std::unique_ptr<Yielding>> Yielding::Create(
    const DaemonOptions& options) {
  auto yielding = std::unique_ptr<Yielding>(new Yielding(options));
  if (!yielding->enabled_) return yielding;
  if (options.yield.choice != YieldOptions::Choice::kPretended) {
    const absl::Status ids = CheckProcessIds();
    if (!ids.ok()) {
      return absl::Status(
          ids.code(),
          absl::StrCat("--yield=auto: ", ids.message(),
                       "; start the container with the machine's process ids "
                       "(--pid=host), or leave --yield off"));
    }
  }
  auto look = LookAtGpuUsers(yielding->probe_);
  if (look.ok()) {
    yielding->first_look_ = *std::move(look);
  } else {
    RH_LOG(kWarning) << "--yield=auto: who uses the GPUs is not known yet: "
                     << look.status().message();
  }
  return yielding;
}

void Yielding::AddTaken(std::set<std::string>& uuids) const {
  for (const wire::GpuProcesses& gpu : first_look_) {
    const bool taken = std::any_of(gpu.processes.begin(), gpu.processes.end(),
                                   [&](const wire::GpuProcess& process) {
                                     return TakesGpu(process, gpu);
                                   });
    if (taken) uuids.insert(gpu.uuid);
  }
}

void Yielding::Begin(EventLoop& loop, const std::vector<wire::Gpu>& gpus,
                     DeviceLoans& loans, DeviceKeeper& keeper) {
  if (!enabled_) return;
  yields_ = std::make_unique<DeviceYields>(
      UuidsOf(DeviceLoans::KeysOf(gpus, loans.device_count())),
      [&loans, &keeper](const DeviceLoanList& yields) {
        loans.SetYields(yields);
        keeper.SetYields(yields);
      },
      back_after_, loop.clock());
  for (const wire::GpuProcesses& gpu : first_look_) yields_->See(gpu);
  loans.OnTakenBack([this, &loop](int device) {
    loop.PostAnswer([this, device] { yields_->TakeBack(device); });
  });
  users_ = std::make_unique<GpuUsers>(
      loop, probe_.program,
      [this](const wire::GpuProcesses& gpu) { yields_->See(gpu); });
  RH_LOG(kInfo) << "devices are left to others' processes on their GPUs "
                   "(--yield=auto)";
}

}  // namespace roundhouse
