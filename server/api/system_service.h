// roundhouse.v1.SystemService.
#ifndef ROUNDHOUSE_SERVER_API_SYSTEM_SERVICE_H_
#define ROUNDHOUSE_SERVER_API_SYSTEM_SERVICE_H_

#include "proto/roundhouse/v1/system.grpc.pb.h"
#include "server/api/disk/disk_engine.h"
#include "server/api/job_engine.h"
#include "server/calls/unary_call.h"
#include "server/doctor/doctor.h"
#include "server/store/store.h"

namespace roundhouse {

// Thread-safe.  Everything given must outlive the gRPC server.
class SystemService final : public v1::SystemService::CallbackService {
 public:
  SystemService(JobEngine* engine, DiskEngine* disk, JobStore* store,
                Doctor* doctor, const CallDoor& door)
      : engine_(engine),
        disk_(disk),
        store_(store),
        doctor_(doctor),
        door_(door) {}

  grpc::ServerUnaryReactor* GetServer(grpc::CallbackServerContext* context,
                                      const v1::GetServerRequest* request,
                                      v1::Server* response) override;
  grpc::ServerUnaryReactor* ListDevices(
      grpc::CallbackServerContext* context,
      const v1::ListDevicesRequest* request,
      v1::ListDevicesResponse* response) override;
  grpc::ServerUnaryReactor* Diagnose(grpc::CallbackServerContext* context,
                                     const v1::DiagnoseRequest* request,
                                     v1::Diagnosis* response) override;
  grpc::ServerUnaryReactor* GetDiskUsage(
      grpc::CallbackServerContext* context,
      const v1::GetDiskUsageRequest* request,
      v1::GetDiskUsageResponse* response) override;

 private:
  absl::Status Fill(v1::Server* response) const;

  JobEngine* const engine_;
  DiskEngine* const disk_;
  JobStore* const store_;
  Doctor* const doctor_;
  const CallDoor door_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_SYSTEM_SERVICE_H_
