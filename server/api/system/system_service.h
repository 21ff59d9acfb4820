// roundhouse.v1.SystemService.
#ifndef ROUNDHOUSE_SERVER_API_SYSTEM_SYSTEM_SERVICE_H_
#define ROUNDHOUSE_SERVER_API_SYSTEM_SYSTEM_SERVICE_H_

#include "proto/roundhouse/v1/system.grpc.pb.h"
#include "server/api/disk/disk_engine.h"
#include "server/api/job_engine.h"
#include "server/calls/unary_call.h"
#include "server/devices/device_loans.h"
#include "server/doctor/doctor.h"
#include "server/store/store.h"

namespace roundhouse {

// Thread-safe.  Everything given must outlive the gRPC server.
class SystemService final : public v1::SystemService::CallbackService {
 public:
  struct Backends {
    JobEngine* engine;
    DiskEngine* disk;
    JobStore* store;
    Doctor* doctor;
    DeviceLoans* loans;
  };
  SystemService(const Backends& to, const CallDoor& door)
      : to_(to), door_(door) {}

  grpc::ServerUnaryReactor* GetServer(grpc::CallbackServerContext* context,
                                      const v1::GetServerRequest* request,
                                      v1::Server* response) override;
  grpc::ServerUnaryReactor* ListDevices(
      grpc::CallbackServerContext* context,
      const v1::ListDevicesRequest* request,
      v1::ListDevicesResponse* response) override;
  grpc::ServerUnaryReactor* LendDevice(grpc::CallbackServerContext* context,
                                       const v1::LendDeviceRequest* request,
                                       v1::Device* response) override;
  grpc::ServerUnaryReactor* ReturnDevice(grpc::CallbackServerContext* context,
                                         const v1::ReturnDeviceRequest* request,
                                         v1::Device* response) override;
  grpc::ServerUnaryReactor* FenceDevice(grpc::CallbackServerContext* context,
                                        const v1::FenceDeviceRequest* request,
                                        v1::Device* response) override;
  grpc::ServerUnaryReactor* UnfenceDevice(
      grpc::CallbackServerContext* context,
      const v1::UnfenceDeviceRequest* request, v1::Device* response) override;
  grpc::ServerUnaryReactor* Diagnose(grpc::CallbackServerContext* context,
                                     const v1::DiagnoseRequest* request,
                                     v1::Diagnosis* response) override;
  grpc::ServerUnaryReactor* GetDiskUsage(
      grpc::CallbackServerContext* context,
      const v1::GetDiskUsageRequest* request,
      v1::GetDiskUsageResponse* response) override;

 private:
  absl::Status Fill(v1::Server* response) const;
  absl::StatusOr<v1::Device> ShowDevice(const DeviceInfo& info,
                                        const DeviceLoanList& loans) const;
  // As it is now.  REQUIRES: there is one.
  absl::Status ShowDevice(int device, v1::Device* response) const;
  bool IsLost(int device) const;
  // A broken one is not lent, and comes back on an admin's word only.
  absl::Status CheckNotLost(int device) const;
  absl::Status Unfence(const std::string& name, v1::Device* response);

  const Backends to_;
  const CallDoor door_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_SYSTEM_SYSTEM_SERVICE_H_
