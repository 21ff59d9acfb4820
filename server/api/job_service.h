// roundhouse.v1.FineTuningJobService.
#ifndef ROUNDHOUSE_SERVER_API_JOB_SERVICE_H_
#define ROUNDHOUSE_SERVER_API_JOB_SERVICE_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/roundhouse/v1/fine_tuning_job.grpc.pb.h"
#include "server/api/disk/disk_engine.h"
#include "server/api/job_engine.h"
#include "server/calls/stream_pump.h"
#include "server/calls/unary_call.h"
#include "server/dataset/dataset_inspector.h"
#include "server/store/store.h"

namespace roundhouse {

// What the calls of jobs ask.
struct JobBackends {
  JobEngine* engine = nullptr;
  DiskEngine* disk = nullptr;
  JobStore* store = nullptr;
  DatasetInspector* inspector = nullptr;
};

// Thread-safe.  Everything given must outlive the gRPC server.
class JobService final : public v1::FineTuningJobService::CallbackService {
 public:
  // A job's log, step metrics and samples are
  // <state_dir>/jobs/<uid>/{log,metrics.jsonl,samples.jsonl}.  `check_kept` as
  // in ApiOptions.
  JobService(const JobBackends& backends, std::string state_dir,
             std::function<absl::Status()> check_kept, const CallDoor& door);

  grpc::ServerUnaryReactor* CreateFineTuningJob(
      grpc::CallbackServerContext* context,
      const v1::CreateFineTuningJobRequest* request,
      v1::FineTuningJob* response) override;
  grpc::ServerUnaryReactor* GetFineTuningJob(
      grpc::CallbackServerContext* context,
      const v1::GetFineTuningJobRequest* request,
      v1::FineTuningJob* response) override;
  grpc::ServerUnaryReactor* ListJobFilePaths(
      grpc::CallbackServerContext* context,
      const v1::ListJobFilePathsRequest* request,
      v1::ListJobFilePathsResponse* response) override;
  grpc::ServerUnaryReactor* ListFineTuningJobs(
      grpc::CallbackServerContext* context,
      const v1::ListFineTuningJobsRequest* request,
      v1::ListFineTuningJobsResponse* response) override;
  grpc::ServerUnaryReactor* CancelFineTuningJob(
      grpc::CallbackServerContext* context,
      const v1::CancelFineTuningJobRequest* request,
      v1::FineTuningJob* response) override;
  grpc::ServerUnaryReactor* PauseFineTuningJob(
      grpc::CallbackServerContext* context,
      const v1::PauseFineTuningJobRequest* request,
      v1::FineTuningJob* response) override;
  grpc::ServerUnaryReactor* ResumeFineTuningJob(
      grpc::CallbackServerContext* context,
      const v1::ResumeFineTuningJobRequest* request,
      v1::FineTuningJob* response) override;
  grpc::ServerUnaryReactor* FinishFineTuningJob(
      grpc::CallbackServerContext* context,
      const v1::FinishFineTuningJobRequest* request,
      v1::FineTuningJob* response) override;
  grpc::ServerUnaryReactor* ExplainFineTuningJob(
      grpc::CallbackServerContext* context,
      const v1::ExplainFineTuningJobRequest* request,
      v1::ExplainFineTuningJobResponse* response) override;
  grpc::ServerUnaryReactor* UpdateFineTuningJob(
      grpc::CallbackServerContext* context,
      const v1::UpdateFineTuningJobRequest* request,
      v1::FineTuningJob* response) override;
  grpc::ServerUnaryReactor* DeleteFineTuningJob(
      grpc::CallbackServerContext* context,
      const v1::DeleteFineTuningJobRequest* request,
      v1::DeleteFineTuningJobResponse* response) override;
  grpc::ServerUnaryReactor* ListFineTuningJobEvents(
      grpc::CallbackServerContext* context,
      const v1::ListFineTuningJobEventsRequest* request,
      v1::ListFineTuningJobEventsResponse* response) override;

  grpc::ServerWriteReactor<v1::WatchFineTuningJobsResponse>*
  WatchFineTuningJobs(grpc::CallbackServerContext* context,
                      const v1::WatchFineTuningJobsRequest* request) override;
  grpc::ServerWriteReactor<v1::StreamFineTuningJobLogsResponse>*
  StreamFineTuningJobLogs(
      grpc::CallbackServerContext* context,
      const v1::StreamFineTuningJobLogsRequest* request) override;
  grpc::ServerWriteReactor<v1::StepMetrics>* StreamFineTuningJobMetrics(
      grpc::CallbackServerContext* context,
      const v1::StreamFineTuningJobMetricsRequest* request) override;
  grpc::ServerWriteReactor<v1::TraceFineTuningJobResponse>* TraceFineTuningJob(
      grpc::CallbackServerContext* context,
      const v1::TraceFineTuningJobRequest* request) override;

 private:
  using Command = absl::StatusOr<JobRecord> (JobEngine::*)(const std::string&);

  grpc::ServerUnaryReactor* DryRun(
      grpc::CallbackServerContext* context,
      const v1::CreateFineTuningJobRequest* request,
      v1::FineTuningJob* response);
  grpc::ServerUnaryReactor* RunCommand(grpc::CallbackServerContext* context,
                                       const google::protobuf::Message* request,
                                       Command command,
                                       v1::FineTuningJob* response);
  // REQUIRES: the request names a job.
  absl::Status Get(const Entered& entered, v1::FineTuningJob* response) const;
  absl::Status Explain(const Entered& entered,
                       v1::ExplainFineTuningJobResponse* response) const;
  absl::Status List(const Entered& entered,
                    const v1::ListFineTuningJobsRequest& request,
                    v1::ListFineTuningJobsResponse* response) const;
  absl::Status ListEvents(const std::string& id,
                          const v1::ListFineTuningJobEventsRequest& request,
                          v1::ListFineTuningJobEventsResponse* response) const;
  std::string JobFile(const JobRecord& job, const std::string& file) const;
  JobEngine* const engine_;
  DiskEngine* const disk_;
  JobStore* const store_;
  DatasetInspector* const inspector_;
  const std::string state_dir_;
  const std::function<absl::Status()> check_kept_;
  const CallDoor door_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_JOB_SERVICE_H_
