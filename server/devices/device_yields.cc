#include "server/devices/device_yields.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace roundhouse {
namespace {

DeviceLoan LoanTo(const wire::GpuProcess& process, absl::Time since) {
  return {.kind = DeviceLoan::Kind::kYielded,
          .owner =
              process.uid.has_value() ? absl::StrCat("uid:", *process.uid) : "",
          .since = since,
          .process = {.pid = process.pid, .name = process.name}};
}

// For the log.
std::string UseOf(const wire::GpuProcess& process) {
  std::string use = !process.compute ? "it draws"
                    : process.busy_percent.has_value()
                        ? absl::StrCat("it computed for ",
                                       *process.busy_percent, " % of the time")
                        : "it can compute, and the driver does not say whether "
                          "it does";
  if (process.memory_bytes.has_value()) {
    absl::StrAppend(&use, ", and has ", *process.memory_bytes,
                    " bytes of the GPU's memory");
  }
  return use;
}

}  // namespace

DeviceYields::DeviceYields(std::vector<std::string> uuids, OnChange changed,
                           absl::Duration back_after, const Clock& clock)
    : changed_(std::move(changed)), clock_(clock), list_(uuids.size()) {
  for (std::string& uuid : uuids) {
    devices_.push_back({std::move(uuid), YieldPolicy(back_after)});
  }
}

void DeviceYields::SayWhetherKnown(int device, const std::string& fault) {
  const bool unknown = !fault.empty();
  if (std::exchange(devices_[device].unknown, unknown) == unknown) return;
  if (unknown) {
    RH_LOG(kWarning) << "who uses the GPU of device " << device
                     << " is not known: " << fault;
  } else {
    RH_LOG(kInfo) << "who uses the GPU of device " << device
                  << " is known again";
  }
}

void DeviceYields::See(const wire::GpuProcesses& gpu) {
  bool changed = false;
  for (int i = 0; i < static_cast<int>(devices_.size()); ++i) {
    if (devices_[i].uuid != gpu.uuid) continue;
    SayWhetherKnown(i, gpu.fault);
    devices_[i].policy.See(gpu, clock_.MonotonicNs());
    changed |= Update(i);
  }
  if (changed) changed_(list_);
}

void DeviceYields::TakeBack(int device) {
  if (!list_[device].has_value()) return;
  devices_[device].policy.Forgive();
  if (Update(device)) changed_(list_);
}

bool DeviceYields::Update(int device) {
  const std::optional<wire::GpuProcess>& taker =
      devices_[device].policy.taker();
  std::optional<DeviceLoan>& loan = list_[device];
  if (!taker.has_value()) {
    if (!loan.has_value()) return false;
    RH_LOG(kInfo) << "device " << device << " comes back from "
                  << ProcessText(*loan);
    loan.reset();
    return true;
  }
  const bool new_loan = !loan.has_value();
  DeviceLoan now = LoanTo(*taker, new_loan ? clock_.WallTime() : loan->since);
  if (!new_loan && now == *loan) return false;
  loan = std::move(now);
  if (new_loan) {
    RH_LOG(kInfo) << TextOf(device, *loan) << ": " << UseOf(*taker);
  }
  return true;
}

}  // namespace roundhouse
