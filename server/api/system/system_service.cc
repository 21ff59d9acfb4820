#include "server/api/system/system_service.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "server/access/job_names.h"
#include "server/api/convert.h"
#include "server/api/disk/disk_convert.h"
#include "server/api/system/device_convert.h"
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
  const ServerInfo info = to_.engine->Server();
  ASSIGN_OR_RETURN(const auto counts, to_.store->CountByState());
  ASSIGN_OR_RETURN(const int64_t revision, to_.store->Revision());
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
  response->set_device_count(static_cast<int>(to_.engine->Devices().size()));
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
                    const DeviceLoanList loans = to_.loans->Now();
                    for (const DeviceInfo& info : to_.engine->Devices()) {
                      ASSIGN_OR_RETURN(*response->add_devices(),
                                       ShowDevice(info, loans));
                    }
                    return absl::OkStatus();
                  });
}

absl::StatusOr<v1::Device> SystemService::ShowDevice(
    const DeviceInfo& info, const DeviceLoanList& loans) const {
  std::string job;
  if (!info.job_id.empty()) {
    const auto record = to_.store->Get(info.job_id);
    // One that ended may have been deleted since.
    if (!record.ok() && !absl::IsNotFound(record.status())) {
      return record.status();
    }
    if (record.ok()) job = JobName(record->project, record->id);
  }
  v1::Device device = ToProto(info, job);
  SetLoan(loans[info.index], &device);
  return device;
}

absl::Status SystemService::ShowDevice(int device, v1::Device* response) const {
  ASSIGN_OR_RETURN(*response,
                   ShowDevice(to_.engine->Devices()[device], to_.loans->Now()));
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* SystemService::LendDevice(
    grpc::CallbackServerContext* context, const v1::LendDeviceRequest* request,
    v1::Device* response) {
  return RunUnary(
      context, door_, request,
      [=, this](const Entered& entered) -> absl::Status {
        ASSIGN_OR_RETURN(const int device, DeviceNamed(request->name()));
        ASSIGN_OR_RETURN(const absl::Time until, EndOf(*request, WallTime()));
        RETURN_IF_ERROR(CheckNotLost(device));
        RETURN_IF_ERROR(to_.loans
                            ->Lend(entered.caller, *door_.limits, device, until,
                                   request->note())
                            .status());
        return ShowDevice(device, response);
      });
}

grpc::ServerUnaryReactor* SystemService::ReturnDevice(
    grpc::CallbackServerContext* context,
    const v1::ReturnDeviceRequest* request, v1::Device* response) {
  return RunUnary(
      context, door_, request,
      [=, this](const Entered& entered) -> absl::Status {
        ASSIGN_OR_RETURN(const int device, DeviceNamed(request->name()));
        RETURN_IF_ERROR(to_.loans->Return(entered.caller, device).status());
        return ShowDevice(device, response);
      });
}

grpc::ServerUnaryReactor* SystemService::FenceDevice(
    grpc::CallbackServerContext* context, const v1::FenceDeviceRequest* request,
    v1::Device* response) {
  return RunUnary(
      context, door_, request,
      [=, this](const Entered& entered) -> absl::Status {
        ASSIGN_OR_RETURN(const int device, DeviceNamed(request->name()));
        RETURN_IF_ERROR(
            to_.loans->Fence(entered.caller, device, request->note()).status());
        return ShowDevice(device, response);
      });
}

bool SystemService::IsLost(int device) const {
  const std::vector<DeviceInfo> infos = to_.engine->Devices();
  return device < static_cast<int>(infos.size()) &&
         infos[device].state == DeviceState::kLost;
}

absl::Status SystemService::CheckNotLost(int device) const {
  if (!IsLost(device)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("device ", device,
                   " was given up; an admin starts it again "
                   "with: roundhouse device unfence ",
                   device));
}

absl::Status SystemService::Unfence(const std::string& name,
                                    v1::Device* response) {
  ASSIGN_OR_RETURN(const int device, DeviceNamed(name));
  if (IsLost(device) && !to_.loans->Now()[device].has_value()) {
    to_.engine->ReviveDevice(device);
  } else {
    RETURN_IF_ERROR(to_.loans->Unfence(device).status());
  }
  return ShowDevice(device, response);
}

grpc::ServerUnaryReactor* SystemService::UnfenceDevice(
    grpc::CallbackServerContext* context,
    const v1::UnfenceDeviceRequest* request, v1::Device* response) {
  return RunUnary(context, door_, request, [=, this](const Entered&) {
    return Unfence(request->name(), response);
  });
}

grpc::ServerUnaryReactor* SystemService::Diagnose(
    grpc::CallbackServerContext* context, const v1::DiagnoseRequest* request,
    v1::Diagnosis* response) {
  return RunUnary(context, door_, request,
                  [this, response](const Entered&) -> absl::Status {
                    ASSIGN_OR_RETURN(const std::vector<Finding> findings,
                                     to_.doctor->Diagnose());
                    for (const Finding& finding : findings) {
                      *response->add_findings() = FindingToProto(finding);
                    }
                    response->set_version(to_.engine->Server().version);
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
                                     to_.disk->DiskUsage(query));
                    *response = ToProto(page);
                    return absl::OkStatus();
                  });
}

}  // namespace roundhouse
