#include "client/testing/fake_server.h"

#include <grpc/grpc.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace roundhouse::client {
namespace {

grpc::Status NoAnswer() {
  return grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "no answer is set");
}

}  // namespace

class FakeServer::Jobs : public v1::FineTuningJobService::Service {
 public:
  explicit Jobs(const FakeAnswers* answers) : answers_(*answers) {}

  grpc::Status ListJobFilePaths(
      grpc::ServerContext*, const v1::ListJobFilePathsRequest* request,
      v1::ListJobFilePathsResponse* response) override {
    return answers_.paths ? answers_.paths(*request, response) : NoAnswer();
  }
  grpc::Status CreateFineTuningJob(
      grpc::ServerContext*, const v1::CreateFineTuningJobRequest* request,
      v1::FineTuningJob* job) override {
    return answers_.create ? answers_.create(*request, job) : NoAnswer();
  }
  grpc::Status GetFineTuningJob(grpc::ServerContext*,
                                const v1::GetFineTuningJobRequest* request,
                                v1::FineTuningJob* job) override {
    return answers_.get ? answers_.get(request->name(), job) : NoAnswer();
  }
  grpc::Status ListFineTuningJobs(
      grpc::ServerContext*, const v1::ListFineTuningJobsRequest* request,
      v1::ListFineTuningJobsResponse* response) override {
    return answers_.list ? answers_.list(*request, response) : NoAnswer();
  }
  grpc::Status WatchFineTuningJobs(
      grpc::ServerContext*, const v1::WatchFineTuningJobsRequest* request,
      grpc::ServerWriter<v1::WatchFineTuningJobsResponse>* writer) override {
    return answers_.watch ? answers_.watch(*request,
                                           [writer](const auto& message) {
                                             return writer->Write(message);
                                           })
                          : NoAnswer();
  }
  grpc::Status StreamFineTuningJobLogs(
      grpc::ServerContext*, const v1::StreamFineTuningJobLogsRequest* request,
      grpc::ServerWriter<v1::StreamFineTuningJobLogsResponse>* writer)
      override {
    return answers_.logs
               ? answers_.logs(*request,
                               [writer](const std::string& data) {
                                 v1::StreamFineTuningJobLogsResponse message;
                                 message.set_data(data);
                                 return writer->Write(message);
                               })
               : NoAnswer();
  }
  grpc::Status TraceFineTuningJob(
      grpc::ServerContext*, const v1::TraceFineTuningJobRequest* request,
      grpc::ServerWriter<v1::TraceFineTuningJobResponse>* writer) override {
    return answers_.trace ? answers_.trace(*request,
                                           [writer](const auto& message) {
                                             return writer->Write(message);
                                           })
                          : NoAnswer();
  }
  grpc::Status PauseFineTuningJob(grpc::ServerContext*,
                                  const v1::PauseFineTuningJobRequest* request,
                                  v1::FineTuningJob* job) override {
    return Change(request->give_back() ? "give back" : "pause", request->name(),
                  job);
  }
  grpc::Status ResumeFineTuningJob(
      grpc::ServerContext*, const v1::ResumeFineTuningJobRequest* request,
      v1::FineTuningJob* job) override {
    return Change("resume", request->name(), job);
  }
  grpc::Status FinishFineTuningJob(
      grpc::ServerContext*, const v1::FinishFineTuningJobRequest* request,
      v1::FineTuningJob* job) override {
    return Change("finish", request->name(), job);
  }
  grpc::Status CancelFineTuningJob(
      grpc::ServerContext*, const v1::CancelFineTuningJobRequest* request,
      v1::FineTuningJob* job) override {
    return Change("cancel", request->name(), job);
  }
  grpc::Status ExplainFineTuningJob(
      grpc::ServerContext*, const v1::ExplainFineTuningJobRequest* request,
      v1::ExplainFineTuningJobResponse* response) override {
    return answers_.explain ? answers_.explain(request->name(), response)
                            : NoAnswer();
  }
  grpc::Status UpdateFineTuningJob(
      grpc::ServerContext*, const v1::UpdateFineTuningJobRequest* request,
      v1::FineTuningJob* job) override {
    return Change(
        absl::StrCat("priority ", v1::JobPriority_Name(request->priority())),
        request->name(), job);
  }
  grpc::Status DeleteFineTuningJob(
      grpc::ServerContext*, const v1::DeleteFineTuningJobRequest* request,
      v1::DeleteFineTuningJobResponse* response) override {
    return answers_.delete_job ? answers_.delete_job(*request, response)
                               : NoAnswer();
  }

 private:
  grpc::Status Change(const std::string& call, const std::string& name,
                      v1::FineTuningJob* job) {
    return answers_.change ? answers_.change(call, name, job) : NoAnswer();
  }

  const FakeAnswers& answers_;
};

class FakeServer::Datasets : public v1::DatasetService::Service {
 public:
  explicit Datasets(const FakeAnswers* answers) : answers_(*answers) {}

  grpc::Status ValidateDataset(grpc::ServerContext*,
                               const v1::ValidateDatasetRequest* request,
                               v1::ValidateDatasetResponse* response) override {
    return answers_.validate ? answers_.validate(*request, response)
                             : NoAnswer();
  }
  grpc::Status PreviewDataset(grpc::ServerContext*,
                              const v1::PreviewDatasetRequest* request,
                              v1::PreviewDatasetResponse* response) override {
    return answers_.preview ? answers_.preview(*request, response) : NoAnswer();
  }

 private:
  const FakeAnswers& answers_;
};

class FakeServer::Checkpoints : public v1::CheckpointService::Service {
 public:
  explicit Checkpoints(const FakeAnswers* answers) : answers_(*answers) {}

  grpc::Status ExportCheckpoint(
      grpc::ServerContext*, const v1::ExportCheckpointRequest* request,
      grpc::ServerWriter<v1::ExportCheckpointResponse>* writer) override {
    return answers_.export_checkpoint
               ? answers_.export_checkpoint(*request,
                                            [writer](const auto& message) {
                                              return writer->Write(message);
                                            })
               : NoAnswer();
  }

  grpc::Status ListOutputFiles(grpc::ServerContext*,
                               const v1::ListOutputFilesRequest* request,
                               v1::ListOutputFilesResponse* response) override {
    return answers_.output_files
               ? answers_.output_files(request->source(), response)
               : NoAnswer();
  }
  grpc::Status ReadOutputFile(grpc::ServerContext*,
                              const v1::ReadOutputFileRequest* request,
                              v1::ReadOutputFileResponse* response) override {
    return answers_.read_output ? answers_.read_output(*request, response)
                                : NoAnswer();
  }
  grpc::Status HashOutputFile(grpc::ServerContext*,
                              const v1::HashOutputFileRequest* request,
                              v1::HashOutputFileResponse* response) override {
    return answers_.hash_output ? answers_.hash_output(*request, response)
                                : NoAnswer();
  }
  grpc::Status ListOldCheckpoints(
      grpc::ServerContext*, const v1::ListOldCheckpointsRequest* request,
      v1::ListOldCheckpointsResponse* response) override {
    return answers_.old_checkpoints
               ? answers_.old_checkpoints(*request, response)
               : NoAnswer();
  }
  grpc::Status DeleteCheckpoints(
      grpc::ServerContext*, const v1::DeleteCheckpointsRequest* request,
      v1::DeleteCheckpointsResponse* response) override {
    return answers_.delete_checkpoints
               ? answers_.delete_checkpoints(*request, response)
               : NoAnswer();
  }

 private:
  const FakeAnswers& answers_;
};

class FakeServer::Models : public v1::ModelService::Service {
 public:
  explicit Models(const FakeAnswers* answers) : answers_(*answers) {}

  grpc::Status ListModels(grpc::ServerContext*, const v1::ListModelsRequest*,
                          v1::ListModelsResponse* response) override {
    return answers_.models ? answers_.models(response) : NoAnswer();
  }
  grpc::Status GetModel(grpc::ServerContext*,
                        const v1::GetModelRequest* request,
                        v1::Model* response) override {
    return answers_.model ? answers_.model(request->name(), response)
                          : NoAnswer();
  }
  grpc::Status Sample(grpc::ServerContext*, const v1::SampleRequest* request,
                      grpc::ServerWriter<v1::SampleResponse>* writer) override {
    return answers_.sample ? answers_.sample(*request,
                                             [writer](const auto& message) {
                                               return writer->Write(message);
                                             })
                           : NoAnswer();
  }

  grpc::Status PullModel(
      grpc::ServerContext*, const v1::PullModelRequest* request,
      grpc::ServerWriter<v1::PullModelResponse>* writer) override {
    return answers_.pull ? answers_.pull(*request,
                                         [writer](const auto& message) {
                                           return writer->Write(message);
                                         })
                         : NoAnswer();
  }

 private:
  const FakeAnswers& answers_;
};

class FakeServer::Plans : public v1::PlanService::Service {
 public:
  explicit Plans(const FakeAnswers* answers) : answers_(*answers) {}

  grpc::Status PlanTraining(grpc::ServerContext*,
                            const v1::PlanTrainingRequest* request,
                            v1::PlanTrainingResponse* response) override {
    return answers_.plan ? answers_.plan(*request, response) : NoAnswer();
  }

 private:
  const FakeAnswers& answers_;
};

class FakeServer::System : public v1::SystemService::Service {
 public:
  explicit System(const FakeAnswers* answers) : answers_(*answers) {}

  grpc::Status ListDevices(grpc::ServerContext*, const v1::ListDevicesRequest*,
                           v1::ListDevicesResponse* response) override {
    return answers_.devices ? answers_.devices(response) : NoAnswer();
  }

  grpc::Status LendDevice(grpc::ServerContext*,
                          const v1::LendDeviceRequest* request,
                          v1::Device* response) override {
    return answers_.lend ? answers_.lend(*request, response) : NoAnswer();
  }
  grpc::Status ReturnDevice(grpc::ServerContext*,
                            const v1::ReturnDeviceRequest* request,
                            v1::Device* response) override {
    return ChangeDevice("return", request->name(), response);
  }
  grpc::Status FenceDevice(grpc::ServerContext*,
                           const v1::FenceDeviceRequest* request,
                           v1::Device* response) override {
    return ChangeDevice("fence " + request->note(), request->name(), response);
  }
  grpc::Status UnfenceDevice(grpc::ServerContext*,
                             const v1::UnfenceDeviceRequest* request,
                             v1::Device* response) override {
    return ChangeDevice("unfence", request->name(), response);
  }

  grpc::Status GetServer(grpc::ServerContext*, const v1::GetServerRequest*,
                         v1::Server* response) override {
    return answers_.server ? answers_.server(response) : NoAnswer();
  }

  grpc::Status Diagnose(grpc::ServerContext*, const v1::DiagnoseRequest*,
                        v1::Diagnosis* response) override {
    return answers_.diagnosis ? answers_.diagnosis(response) : NoAnswer();
  }

  grpc::Status GetDiskUsage(grpc::ServerContext*,
                            const v1::GetDiskUsageRequest* request,
                            v1::GetDiskUsageResponse* response) override {
    return answers_.disk_usage ? answers_.disk_usage(*request, response)
                               : NoAnswer();
  }

 private:
  grpc::Status ChangeDevice(const std::string& call, const std::string& name,
                            v1::Device* response) const {
    return answers_.change_device ? answers_.change_device(call, name, response)
                                  : NoAnswer();
  }

  const FakeAnswers& answers_;
};

class FakeServer::Accounts : public v1::AccountService::Service {
 public:
  explicit Accounts(const FakeAnswers* answers) : answers_(*answers) {}

  grpc::Status SetUser(grpc::ServerContext*, const v1::SetUserRequest* request,
                       v1::User* response) override {
    return answers_.set_user ? answers_.set_user(*request, response)
                             : NoAnswer();
  }
  grpc::Status RemoveUser(grpc::ServerContext*,
                          const v1::RemoveUserRequest* request,
                          v1::User* response) override {
    return answers_.remove_user ? answers_.remove_user(*request, response)
                                : NoAnswer();
  }
  grpc::Status ListUsers(grpc::ServerContext*,
                         const v1::ListUsersRequest* request,
                         v1::ListUsersResponse* response) override {
    return answers_.users ? answers_.users(*request, response) : NoAnswer();
  }
  grpc::Status AddProject(grpc::ServerContext*,
                          const v1::AddProjectRequest* request,
                          v1::Project* response) override {
    return answers_.add_project ? answers_.add_project(*request, response)
                                : NoAnswer();
  }
  grpc::Status RemoveProject(grpc::ServerContext*,
                             const v1::RemoveProjectRequest* request,
                             v1::RemoveProjectResponse*) override {
    return answers_.remove_project ? answers_.remove_project(request->project())
                                   : NoAnswer();
  }
  grpc::Status ListProjects(grpc::ServerContext*,
                            const v1::ListProjectsRequest*,
                            v1::ListProjectsResponse* response) override {
    return answers_.projects ? answers_.projects(response) : NoAnswer();
  }
  grpc::Status ListAudit(grpc::ServerContext*,
                         const v1::ListAuditRequest* request,
                         v1::ListAuditResponse* response) override {
    return answers_.audit ? answers_.audit(*request, response) : NoAnswer();
  }
  grpc::Status SetLimit(grpc::ServerContext*,
                        const v1::SetLimitRequest* request,
                        v1::Limit* response) override {
    return answers_.set_limit ? answers_.set_limit(*request, response)
                              : NoAnswer();
  }
  grpc::Status RemoveLimit(grpc::ServerContext*,
                           const v1::RemoveLimitRequest* request,
                           v1::RemoveLimitResponse*) override {
    return answers_.remove_limit ? answers_.remove_limit(*request) : NoAnswer();
  }
  grpc::Status ListLimits(grpc::ServerContext*, const v1::ListLimitsRequest*,
                          v1::ListLimitsResponse* response) override {
    return answers_.limits ? answers_.limits(response) : NoAnswer();
  }
  grpc::Status GetUsage(grpc::ServerContext*,
                        const v1::GetUsageRequest* request,
                        v1::GetUsageResponse* response) override {
    return answers_.usage ? answers_.usage(*request, response) : NoAnswer();
  }
  grpc::Status WhoAmI(grpc::ServerContext*, const v1::WhoAmIRequest*,
                      v1::WhoAmIResponse* response) override {
    return answers_.who_am_i ? answers_.who_am_i(response) : NoAnswer();
  }
  grpc::Status CreateToken(grpc::ServerContext*,
                           const v1::CreateTokenRequest* request,
                           v1::CreateTokenResponse* response) override {
    return answers_.create_token ? answers_.create_token(*request, response)
                                 : NoAnswer();
  }
  grpc::Status ListTokens(grpc::ServerContext*,
                          const v1::ListTokensRequest* request,
                          v1::ListTokensResponse* response) override {
    return answers_.tokens ? answers_.tokens(*request, response) : NoAnswer();
  }
  grpc::Status RevokeToken(grpc::ServerContext*,
                           const v1::RevokeTokenRequest* request,
                           v1::Token* response) override {
    return answers_.revoke_token ? answers_.revoke_token(*request, response)
                                 : NoAnswer();
  }

 private:
  const FakeAnswers& answers_;
};

class FakeServer::Uploads : public v1::UploadService::Service {
 public:
  explicit Uploads(const FakeAnswers* answers) : answers_(*answers) {}

  grpc::Status CreateUpload(grpc::ServerContext*,
                            const v1::CreateUploadRequest* request,
                            v1::Upload* response) override {
    return answers_.create_upload ? answers_.create_upload(*request, response)
                                  : NoAnswer();
  }
  grpc::Status UploadChunk(grpc::ServerContext*,
                           const v1::UploadChunkRequest* request,
                           v1::UploadChunkResponse* response) override {
    return answers_.chunk ? answers_.chunk(*request, response) : NoAnswer();
  }
  grpc::Status FinishUpload(grpc::ServerContext*,
                            const v1::FinishUploadRequest* request,
                            v1::Upload* response) override {
    return answers_.finish_upload
               ? answers_.finish_upload(request->id(), response)
               : NoAnswer();
  }
  grpc::Status GetUpload(grpc::ServerContext*,
                         const v1::GetUploadRequest* request,
                         v1::Upload* response) override {
    return answers_.upload ? answers_.upload(request->id(), response)
                           : NoAnswer();
  }
  grpc::Status ListUploads(grpc::ServerContext*,
                           const v1::ListUploadsRequest* request,
                           v1::ListUploadsResponse* response) override {
    return answers_.uploads ? answers_.uploads(*request, response) : NoAnswer();
  }
  grpc::Status DeleteUpload(grpc::ServerContext*,
                            const v1::DeleteUploadRequest* request,
                            v1::DeleteUploadResponse*) override {
    return answers_.delete_upload ? answers_.delete_upload(request->id())
                                  : NoAnswer();
  }

 private:
  const FakeAnswers& answers_;
};

FakeServer::FakeServer() {
  // As in client/connection.cc: gRPC's shutdown is slow.
  static const bool kept = (grpc_init(), true);
  (void)kept;
  char folder[] = "/tmp/roundhouse-client-XXXXXX";
  ROUNDHOUSE_CHECK(mkdtemp(folder) != nullptr);
  folder_ = folder;
  address_ = "unix:" + folder_ + "/socket";
  jobs_ = std::make_unique<Jobs>(&answers_);
  datasets_ = std::make_unique<Datasets>(&answers_);
  checkpoints_ = std::make_unique<Checkpoints>(&answers_);
  models_ = std::make_unique<Models>(&answers_);
  plans_ = std::make_unique<Plans>(&answers_);
  system_ = std::make_unique<System>(&answers_);
  accounts_ = std::make_unique<Accounts>(&answers_);
  uploads_ = std::make_unique<Uploads>(&answers_);
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address_, grpc::InsecureServerCredentials());
  builder.RegisterService(jobs_.get());
  builder.RegisterService(datasets_.get());
  builder.RegisterService(checkpoints_.get());
  builder.RegisterService(models_.get());
  builder.RegisterService(plans_.get());
  builder.RegisterService(system_.get());
  builder.RegisterService(accounts_.get());
  builder.RegisterService(uploads_.get());
  server_ = builder.BuildAndStart();
  ROUNDHOUSE_CHECK(server_ != nullptr) << address_;
}

FakeServer::~FakeServer() {
  // Calls still running are cancelled at once.
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
  unlink((folder_ + "/socket").c_str());
  rmdir(folder_.c_str());
}

FakeAnswers& FakeServer::answers() { return answers_; }

}  // namespace roundhouse::client
