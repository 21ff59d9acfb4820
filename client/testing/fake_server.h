// A gRPC server on a Unix socket whose answers a test writes: the generated
// services, a function for each call.
#ifndef ROUNDHOUSE_CLIENT_TESTING_FAKE_SERVER_H_
#define ROUNDHOUSE_CLIENT_TESTING_FAKE_SERVER_H_

#include <grpcpp/server.h>
#include <grpcpp/server_context.h>

#include <functional>
#include <memory>
#include <string>

#include "proto/roundhouse/v1/account.grpc.pb.h"
#include "proto/roundhouse/v1/checkpoint.grpc.pb.h"
#include "proto/roundhouse/v1/dataset.grpc.pb.h"
#include "proto/roundhouse/v1/fine_tuning_job.grpc.pb.h"
#include "proto/roundhouse/v1/model.grpc.pb.h"
#include "proto/roundhouse/v1/plan.grpc.pb.h"
#include "proto/roundhouse/v1/system.grpc.pb.h"
#include "proto/roundhouse/v1/upload.grpc.pb.h"

namespace roundhouse::client {

// Sends one message of a stream; false when the client is gone.
using SendWatch = std::function<bool(const v1::WatchFineTuningJobsResponse&)>;
using SendSample = std::function<bool(const v1::SampleResponse&)>;
using SendPull = std::function<bool(const v1::PullModelResponse&)>;
using SendLog = std::function<bool(const std::string&)>;
using SendTrace = std::function<bool(const v1::TraceFineTuningJobResponse&)>;
using SendExport = std::function<bool(const v1::ExportCheckpointResponse&)>;

// What the server does; an empty function answers UNIMPLEMENTED.  Called on
// the server's threads; set before the client runs.
struct FakeAnswers {
  std::function<grpc::Status(const v1::CreateFineTuningJobRequest&,
                             v1::FineTuningJob*)>
      create;
  std::function<grpc::Status(const v1::ListJobFilePathsRequest&,
                             v1::ListJobFilePathsResponse*)>
      paths;
  std::function<grpc::Status(const std::string& name, v1::FineTuningJob*)> get;
  std::function<grpc::Status(const v1::ListFineTuningJobsRequest&,
                             v1::ListFineTuningJobsResponse*)>
      list;
  std::function<grpc::Status(const v1::WatchFineTuningJobsRequest&,
                             const SendWatch&)>
      watch;
  std::function<grpc::Status(const v1::StreamFineTuningJobLogsRequest&,
                             const SendLog&)>
      logs;
  std::function<grpc::Status(const v1::TraceFineTuningJobRequest&,
                             const SendTrace&)>
      trace;
  std::function<grpc::Status(const std::string& name,
                             v1::ExplainFineTuningJobResponse*)>
      explain;
  // `call` is "pause", "resume", "finish" or "cancel".
  std::function<grpc::Status(const std::string& call, const std::string& name,
                             v1::FineTuningJob*)>
      change;
  std::function<grpc::Status(const v1::DeleteFineTuningJobRequest&,
                             v1::DeleteFineTuningJobResponse*)>
      delete_job;
  std::function<grpc::Status(const v1::ListOldCheckpointsRequest&,
                             v1::ListOldCheckpointsResponse*)>
      old_checkpoints;
  std::function<grpc::Status(const v1::DeleteCheckpointsRequest&,
                             v1::DeleteCheckpointsResponse*)>
      delete_checkpoints;
  std::function<grpc::Status(const v1::GetDiskUsageRequest&,
                             v1::GetDiskUsageResponse*)>
      disk_usage;
  std::function<grpc::Status(v1::ListDevicesResponse*)> devices;
  std::function<grpc::Status(const v1::LendDeviceRequest&, v1::Device*)> lend;
  // The other calls that take a device out of use or back, by their names.
  std::function<grpc::Status(const std::string& call, const std::string& name,
                             v1::Device*)>
      change_device;
  std::function<grpc::Status(v1::Server*)> server;
  std::function<grpc::Status(v1::Diagnosis*)> diagnosis;
  std::function<grpc::Status(const v1::ValidateDatasetRequest&,
                             v1::ValidateDatasetResponse*)>
      validate;
  std::function<grpc::Status(const v1::PreviewDatasetRequest&,
                             v1::PreviewDatasetResponse*)>
      preview;
  std::function<grpc::Status(const v1::ExportCheckpointRequest&,
                             const SendExport&)>
      export_checkpoint;
  std::function<grpc::Status(const std::string& source,
                             v1::ListOutputFilesResponse*)>
      output_files;
  std::function<grpc::Status(const v1::ReadOutputFileRequest&,
                             v1::ReadOutputFileResponse*)>
      read_output;
  std::function<grpc::Status(const v1::HashOutputFileRequest&,
                             v1::HashOutputFileResponse*)>
      hash_output;
  std::function<grpc::Status(v1::ListModelsResponse*)> models;
  std::function<grpc::Status(const std::string& name, v1::Model*)> model;
  std::function<grpc::Status(const v1::SampleRequest&, const SendSample&)>
      sample;
  std::function<grpc::Status(const v1::PullModelRequest&, const SendPull&)>
      pull;
  std::function<grpc::Status(const v1::PlanTrainingRequest&,
                             v1::PlanTrainingResponse*)>
      plan;
  std::function<grpc::Status(const v1::SetUserRequest&, v1::User*)> set_user;
  std::function<grpc::Status(const v1::RemoveUserRequest&, v1::User*)>
      remove_user;
  std::function<grpc::Status(const v1::ListUsersRequest&,
                             v1::ListUsersResponse*)>
      users;
  std::function<grpc::Status(const v1::AddProjectRequest&, v1::Project*)>
      add_project;
  std::function<grpc::Status(const std::string& project)> remove_project;
  std::function<grpc::Status(v1::ListProjectsResponse*)> projects;
  std::function<grpc::Status(v1::WhoAmIResponse*)> who_am_i;
  std::function<grpc::Status(const v1::ListAuditRequest&,
                             v1::ListAuditResponse*)>
      audit;
  std::function<grpc::Status(const v1::SetLimitRequest&, v1::Limit*)> set_limit;
  std::function<grpc::Status(const v1::RemoveLimitRequest&)> remove_limit;
  std::function<grpc::Status(v1::ListLimitsResponse*)> limits;
  std::function<grpc::Status(const v1::GetUsageRequest&, v1::GetUsageResponse*)>
      usage;
  std::function<grpc::Status(const v1::CreateUploadRequest&, v1::Upload*)>
      create_upload;
  std::function<grpc::Status(const v1::UploadChunkRequest&,
                             v1::UploadChunkResponse*)>
      chunk;
  std::function<grpc::Status(const std::string& id, v1::Upload*)> finish_upload;
  std::function<grpc::Status(const std::string& id, v1::Upload*)> upload;
  std::function<grpc::Status(const v1::ListUploadsRequest&,
                             v1::ListUploadsResponse*)>
      uploads;
  std::function<grpc::Status(const std::string& id)> delete_upload;
  std::function<grpc::Status(const v1::CreateTokenRequest&,
                             v1::CreateTokenResponse*)>
      create_token;
  std::function<grpc::Status(const v1::ListTokensRequest&,
                             v1::ListTokensResponse*)>
      tokens;
  std::function<grpc::Status(const v1::RevokeTokenRequest&, v1::Token*)>
      revoke_token;
};

class FakeServer {
 public:
  // Listens at once, in a new folder under /tmp.
  FakeServer();
  ~FakeServer();

  FakeAnswers& answers();
  // "unix:PATH".
  const std::string& address() const { return address_; }

 private:
  class Accounts;
  class Checkpoints;
  class Datasets;
  class Jobs;
  class Models;
  class Plans;
  class System;
  class Uploads;

  std::string folder_;
  std::string address_;
  FakeAnswers answers_;
  std::unique_ptr<Jobs> jobs_;
  std::unique_ptr<Datasets> datasets_;
  std::unique_ptr<Checkpoints> checkpoints_;
  std::unique_ptr<Models> models_;
  std::unique_ptr<Plans> plans_;
  std::unique_ptr<System> system_;
  std::unique_ptr<Accounts> accounts_;
  std::unique_ptr<Uploads> uploads_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_TESTING_FAKE_SERVER_H_
