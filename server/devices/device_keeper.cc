#include "server/devices/device_keeper.h"

#include <optional>

#include "base/log.h"

namespace roundhouse {

DeviceKeeper::DeviceKeeper(EventLoop& loop, WorkerPool& pool,
                           DispatchLoop& dispatch)
    : loop_(loop), pool_(pool), dispatch_(dispatch) {}

DeviceKeeper::~DeviceKeeper() {
  for (const auto& [device, timer] : limits_) loop_.CancelTimer(timer);
}

void DeviceKeeper::SetLoans(const DeviceLoanList& loans) {
  loans_ = loans;
  Look();
}

void DeviceKeeper::Look() {
  const absl::Time now = loop_.clock().WallTime();
  for (size_t i = 0; i < loans_.size(); ++i) {
    const auto device = static_cast<DeviceId>(i);
    std::optional<DeviceLoan>& loan = loans_[i];
    // Over for good, whatever the clock does.
    if (loan.has_value() && now >= loan->until) loan.reset();
    const bool lent = loan.has_value();
    const bool out = out_.count(device) != 0;
    if (lent && !out) Leave(device, TextOf(static_cast<int>(i), *loan));
    if (!lent && out) BringBack(device);
  }
}

void DeviceKeeper::Leave(DeviceId device, const std::string& why) {
  out_[device] = why;
  if (!pool_.up(pool_.DeviceWorker(device))) return TakeOut(device);
  limits_[device] = loop_.After(kVacateLimit, [this, device] {
    RH_LOG(kWarning) << "what device " << Number(device)
                     << " computes takes too long, and is given up";
    TakeOut(device);
  });
  dispatch_.Vacate(device, [this, device] { TakeOut(device); });
}

void DeviceKeeper::TakeOut(DeviceId device) {
  if (const auto limit = limits_.extract(device)) {
    loop_.CancelTimer(limit.mapped());
  }
  pool_.TakeOut(device, out_.at(device));
}

void DeviceKeeper::BringBack(DeviceId device) {
  out_.erase(device);
  if (const auto limit = limits_.extract(device)) {
    loop_.CancelTimer(limit.mapped());
  }
  dispatch_.Stay(device);
  pool_.BringBack(device);
}

}  // namespace roundhouse
