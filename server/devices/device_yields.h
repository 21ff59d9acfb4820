// The devices that are left to processes of others by themselves: one
// YieldPolicy a device, and what they come to as a list of loans.
//
// Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_DEVICES_DEVICE_YIELDS_H_
#define ROUNDHOUSE_SERVER_DEVICES_DEVICE_YIELDS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/wire/gpu_processes.h"
#include "server/devices/device_loans.h"
#include "server/devices/yield_policy.h"

namespace roundhouse {

class DeviceYields {
 public:
  using OnChange = std::function<void(const DeviceLoanList&)>;

  // `uuids` of each device's GPU; several devices may be on one.  `changed` is
  // told of all as they are after each change.
  DeviceYields(std::vector<std::string> uuids, OnChange changed,
               absl::Duration back_after = kYieldBackAfter,
               const Clock& clock = SystemClock());

  // A look at one GPU, maybe no device's.
  void See(const wire::GpuProcesses& gpu);
  // Takes the device back from whoever is on its GPU; no effect where nobody
  // has it.
  void TakeBack(int device);

 private:
  struct Device {
    std::string uuid;
    YieldPolicy policy;
    bool unknown = false;  // the last look failed
  };

  void SayWhetherKnown(int device, const std::string& fault);
  // Whether the list is another one than before.
  bool Update(int device);

  const OnChange changed_;
  const Clock& clock_;
  std::vector<Device> devices_;
  DeviceLoanList list_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DEVICES_DEVICE_YIELDS_H_
