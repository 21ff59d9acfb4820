// Between the wire and the devices' loans (server/devices).
//
// Pure functions; thread-safe.  Errors are kInvalidArgument with the field.
#ifndef ROUNDHOUSE_SERVER_API_SYSTEM_DEVICE_CONVERT_H_
#define ROUNDHOUSE_SERVER_API_SYSTEM_DEVICE_CONVERT_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/roundhouse/v1/system.pb.h"
#include "server/devices/device_loans.h"

namespace roundhouse {

// The index in "devices/3" or "3", from 0 to 9999.
absl::StatusOr<int> DeviceNamed(const std::string& name);
// InfiniteFuture: the request says nothing of it.
absl::StatusOr<absl::Time> EndOf(const v1::LendDeviceRequest& request,
                                 absl::Time now);
// Shows the loan, if there is one, and what it makes of the device's state.
void SetLoan(const std::optional<DeviceLoan>& loan, v1::Device* device);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_SYSTEM_DEVICE_CONVERT_H_
