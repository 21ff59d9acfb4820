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

void DeviceKeeper::SetYields(const DeviceLoanList& yields) {
  yields_ = yields;
  Look();
}

const DeviceLoan* DeviceKeeper::HolderOf(size_t device) const {
  for (const DeviceLoanList* list : {&loans_, &yields_}) {
    if (device < list->size() && (*list)[device].has_value()) {
      return &*(*list)[device];
    }
  }
  return nullptr;
}

const char* DeviceKeeper::WordOf(int device) const {
  const DeviceLoan* const holder = HolderOf(static_cast<size_t>(device));
  if (holder == nullptr) return "";
  switch (holder->kind) {
    case DeviceLoan::Kind::kLent:
      return "lent";
    case DeviceLoan::Kind::kFenced:
      return "fenced";
    case DeviceLoan::Kind::kYielded:
      return "yielded";
  }
  return "";
}

void DeviceKeeper::Look() {
  const absl::Time now = loop_.clock().WallTime();
  for (std::optional<DeviceLoan>& loan : loans_) {
    // Over for good, whatever the clock does.
    if (loan.has_value() && now >= loan->until) loan.reset();
  }
  for (int i = 0; i < pool_.device_count(); ++i) {
    const auto device = static_cast<DeviceId>(i);
    const DeviceLoan* const holder = HolderOf(static_cast<size_t>(i));
    const bool out = out_.count(device) != 0;
    if (holder != nullptr && !out) Leave(device, TextOf(i, *holder));
    if (holder == nullptr && out) BringBack(device);
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
