#include "server/api/system_service.h"

#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "server/access/job_names.h"
#include "server/api/convert.h"
#include "server/api/disk/disk_convert.h"
#include "server/calls/unary_call.h"
#include "server/doctor/finding_proto.h"

namespace roundhouse {

grpc::ServerUnaryReactor* SystemService::GetServer(
    grpc::CallbackServerContext* context, const v1::GetServerRequest* request,
    v1::Server* response) {
  return RunUnary(context, door_, request,
                  [this, response](const Entered&) { return Fill(response); });
}

absl::Status SystemService::Fill(v1::Server* response) const {
  const ServerInfo info = engine_->Server();
  ASSIGN_OR_RETURN(const auto counts, store_->CountByState());
  ASSIGN_OR_RETURN(const int64_t revision, store_->Revision());
  int64_t running = 0;
  int64_t queued = 0;
  for (const auto& [state, count] : counts) {
    if (IsActive(state)) running += count;
    if (state == JobState::kQueued) queued = count;
  }
  response->set_version(info.version);
  *response->mutable_start_time() = ToProto(info.start_time);
  response->set_host_memory_limit_bytes(info.host_memory_limit_bytes);
  response->set_host_memory_used_bytes(info.host_memory_used_bytes);
  response->set_device_count(static_cast<int>(engine_->Devices().size()));
  response->set_running_jobs(static_cast<int>(running));
  response->set_queued_jobs(static_cast<int>(queued));
  response->set_metrics_address(info.metrics_address);
  response->set_revision(revision);
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* SystemService::ListDevices(
    grpc::CallbackServerContext* context, const v1::ListDevicesRequest* request,
    v1::ListDevicesResponse* response) {
  return RunUnary(context, door_, request,
                  [this, response](const Entered&) -> absl::Status {
                    for (const DeviceInfo& device : engine_->Devices()) {
                      std::string job;
                      if (!device.job_id.empty()) {
                        ASSIGN_OR_RETURN(const JobRecord record,
                                         store_->Get(device.job_id));
                        job = JobName(record.project, record.id);
                      }
                      *response->add_devices() = ToProto(device, job);
                    }
                    return absl::OkStatus();
                  });
}

grpc::ServerUnaryReactor* SystemService::Diagnose(
    grpc::CallbackServerContext* context, const v1::DiagnoseRequest* request,
    v1::Diagnosis* response) {
  return RunUnary(context, door_, request,
                  [this, response](const Entered&) -> absl::Status {
                    ASSIGN_OR_RETURN(const std::vector<Finding> findings,
                                     doctor_->Diagnose());
                    for (const Finding& finding : findings) {
                      *response->add_findings() = FindingToProto(finding);
                    }
                    response->set_version(engine_->Server().version);
                    *response->mutable_time() = ToProto(WallTime());
                    return absl::OkStatus();
                  });
}

grpc::ServerUnaryReactor* SystemService::GetDiskUsage(
    grpc::CallbackServerContext* context,
    const v1::GetDiskUsageRequest* request,
    v1::GetDiskUsageResponse* response) {
  return RunUnary(context, door_, request,
                  [=, this](const Entered& entered) -> absl::Status {
                    ASSIGN_OR_RETURN(const DiskUsageQuery query,
                                     FromProto(*request, entered.caller));
                    ASSIGN_OR_RETURN(const DiskUsagePage page,
                                     disk_->DiskUsage(query));
                    *response = ToProto(page);
                    return absl::OkStatus();
                  });
}

}  // namespace roundhouse
