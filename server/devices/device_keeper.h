// Takes devices out of use and back, as their loans say (device_loans.h), and
// for processes of others (device_yields.h).  One is used when neither has it.
//
// A device that is to be out gets no slot any more.  What it computes ends
// first, for kVacateLimit at most, then its worker is asked to end: the
// device's memory is free.  Jobs go on with the devices that are left, or wait
// where none is.
//
// Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_DEVICES_DEVICE_KEEPER_H_
#define ROUNDHOUSE_SERVER_DEVICES_DEVICE_KEEPER_H_

#include <map>
#include <string>

#include "absl/time/time.h"
#include "base/ids.h"
#include "server/devices/device_loans.h"
#include "server/loop/event_loop.h"
#include "server/steps/dispatch_loop.h"
#include "server/workers/worker_pool.h"

namespace roundhouse {

// A slot that takes longer is lost, and computed again elsewhere.
inline constexpr absl::Duration kVacateLimit = absl::Seconds(30);

class DeviceKeeper {
 public:
  // All outlive it.
  DeviceKeeper(EventLoop& loop, WorkerPool& pool, DispatchLoop& dispatch);
  ~DeviceKeeper();
  DeviceKeeper(const DeviceKeeper&) = delete;
  DeviceKeeper& operator=(const DeviceKeeper&) = delete;

  // The loans as they are now (DeviceLoans::Stored).
  void SetLoans(const DeviceLoanList& loans);
  // The devices that are left to processes now.
  void SetYields(const DeviceLoanList& yields);
  // Looks which of them are over; once a second.
  void Look();
  // "lent", "fenced" or "yielded"; "": none of them.
  const char* WordOf(int device) const;

 private:
  // Null: nobody has it.
  const DeviceLoan* HolderOf(size_t device) const;
  void Leave(DeviceId device, const std::string& why);
  void TakeOut(DeviceId device);
  void BringBack(DeviceId device);

  EventLoop& loop_;
  WorkerPool& pool_;
  DispatchLoop& dispatch_;
  DeviceLoanList loans_;
  DeviceLoanList yields_;
  // Why, of those that leave or have left.
  std::map<DeviceId, std::string> out_;
  std::map<DeviceId, EventLoop::TimerId> limits_;  // of those that leave
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DEVICES_DEVICE_KEEPER_H_
