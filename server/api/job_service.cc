#include "server/api/job_service.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/visible_text.h"
#include "server/api/convert.h"
#include "server/api/dataset_service.h"
#include "server/api/disk/disk_convert.h"
#include "server/api/file_streams.h"
#include "server/api/history/sample_history.h"
#include "server/api/history/step_history.h"
#include "server/api/inspection_call.h"
#include "server/api/trace_stream.h"
#include "server/api/watch_stream.h"
#include "server/calls/begin_stream.h"
#include "server/calls/unary_call.h"
#include "server/explain/explanation.h"
#include "server/explain/state_since.h"
#include "server/spec/job_file.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

void PutWarnings(const std::vector<std::string>& warnings,
                 v1::FineTuningJob* out) {
  for (const std::string& warning : warnings) {
    out->add_warnings(ValidUtf8(warning));
  }
}

}  // namespace

JobService::JobService(const JobBackends& backends, std::string state_dir,
                       std::function<absl::Status()> check_kept,
                       const CallDoor& door)
    : engine_(backends.engine),
      disk_(backends.disk),
      store_(backends.store),
      inspector_(backends.inspector),
      state_dir_(std::move(state_dir)),
      check_kept_(std::move(check_kept)),
      door_(door) {}

grpc::ServerUnaryReactor* JobService::CreateFineTuningJob(
    grpc::CallbackServerContext* context,
    const v1::CreateFineTuningJobRequest* request,
    v1::FineTuningJob* response) {
  if (request->validate_only()) return DryRun(context, request, response);
  const auto create = [=, this](const Entered& entered) -> absl::Status {
    ASSIGN_OR_RETURN(SubmitRequest submit, FromProto(*request));
    submit.caller = entered.caller;
    submit.project = entered.project;
    submit.may_be_made =
        door_.limits->MayAddJob(entered.caller, entered.project);
    RETURN_IF_ERROR(check_kept_());
    ASSIGN_OR_RETURN(const SubmitResult made, engine_->Submit(submit));
    RETURN_IF_ERROR(check_kept_());
    *response = ToProto(made.job);
    PutWarnings(made.warnings, response);
    return absl::OkStatus();
  };
  return RunUnary(context, door_, request, create, response);
}

grpc::ServerUnaryReactor* JobService::DryRun(
    grpc::CallbackServerContext* context,
    const v1::CreateFineTuningJobRequest* request,
    v1::FineTuningJob* response) {
  return RunInspection(
      inspector_, door_, context, request,
      [=, this](const Entered& entered) -> absl::StatusOr<DatasetQuestion> {
        ASSIGN_OR_RETURN(SubmitRequest submit, FromProto(*request));
        submit.caller = entered.caller;
        submit.project = entered.project;
        ASSIGN_OR_RETURN(const DryRunResult dry, engine_->DryRun(submit));
        *response = ToProto(dry.job);
        *response->mutable_needs() = ToProto(dry.needs);
        PutWarnings(dry.warnings, response);
        if (dry.has_eval_prompts) {
          response->set_message(
              " eval_prompts are checked when the job's data are prepared.");
        }
        return dry.first_sequence;
      },
      [response](const std::string& text) -> absl::Status {
        ASSIGN_OR_RETURN(FirstRows rows, FirstRowsFromJson(text));
        response->mutable_sample()->Swap(&rows.sample);
        response->set_message(rows.what + response->message());
        response->mutable_needs()->set_dataset_rows(rows.rows);
        PutWarnings(rows.warnings, response);
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* JobService::ListJobFilePaths(
    grpc::CallbackServerContext* context,
    const v1::ListJobFilePathsRequest* request,
    v1::ListJobFilePathsResponse* response) {
  return RunUnary(context, door_, request, [=](const Entered&) -> absl::Status {
    v1::CreateFineTuningJobRequest as_submitted;
    as_submitted.set_text(request->text());
    as_submitted.set_file_name(request->file_name());
    ASSIGN_OR_RETURN(const SubmitRequest submit, FromProto(as_submitted));
    ASSIGN_OR_RETURN(roundhouse::JobFile file,
                     ReadJobFile(submit.text, submit.file_name));
    for (const auto& [field, path] : PathsToUpload(&file.spec())) {
      v1::JobFilePath* const added = response->add_paths();
      added->set_field(field);
      added->set_path(*path);
    }
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* JobService::GetFineTuningJob(
    grpc::CallbackServerContext* context,
    const v1::GetFineTuningJobRequest* request, v1::FineTuningJob* response) {
  return RunUnary(context, door_, request, [=, this](const Entered& entered) {
    return Get(entered, response);
  });
}

absl::Status JobService::Get(const Entered& entered,
                             v1::FineTuningJob* response) const {
  const JobRecord& job = *entered.job;
  *response = ToProto(job);
  if (!entered.SeesAllOf(job)) {
    *response = Outline(std::move(*response));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const StepHistory history,
                   ReadStepHistory(JobFile(job, "metrics.jsonl")));
  response->mutable_loss_history()->Assign(history.losses.begin(),
                                           history.losses.end());
  response->mutable_eval_history()->Assign(history.evals.begin(),
                                           history.evals.end());
  ASSIGN_OR_RETURN(const std::vector<v1::EvalSample> samples,
                   ReadNewestSamples(JobFile(job, "samples.jsonl")));
  response->mutable_eval_samples()->Assign(samples.begin(), samples.end());
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* JobService::ListFineTuningJobs(
    grpc::CallbackServerContext* context,
    const v1::ListFineTuningJobsRequest* request,
    v1::ListFineTuningJobsResponse* response) {
  return RunUnary(context, door_, request, [=, this](const Entered& entered) {
    return List(entered, *request, response);
  });
}

absl::Status JobService::List(const Entered& entered,
                              const v1::ListFineTuningJobsRequest& request,
                              v1::ListFineTuningJobsResponse* response) const {
  ASSIGN_OR_RETURN(const ListQuery query, FromProto(request));
  ASSIGN_OR_RETURN(const JobPage page,
                   store_->List(query.states, query.before, query.limit));
  for (const JobRecord& job : page.jobs) {
    *response->add_jobs() =
        entered.SeesAllOf(job) ? ToProto(job) : Outline(ToProto(job));
  }
  if (page.next_before.has_value()) {
    response->set_next_page_token(PageToken(*page.next_before));
  }
  response->set_revision(page.revision);
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* JobService::RunCommand(
    grpc::CallbackServerContext* context,
    const google::protobuf::Message* request, Command command,
    v1::FineTuningJob* response) {
  return RunUnary(context, door_, request,
                  [=, this](const Entered& entered) -> absl::Status {
                    ASSIGN_OR_RETURN(const JobRecord job,
                                     (engine_->*command)(entered.job->id));
                    *response = ToProto(job);
                    return absl::OkStatus();
                  });
}

grpc::ServerUnaryReactor* JobService::CancelFineTuningJob(
    grpc::CallbackServerContext* context,
    const v1::CancelFineTuningJobRequest* request,
    v1::FineTuningJob* response) {
  return RunCommand(context, request, &JobEngine::Cancel, response);
}

grpc::ServerUnaryReactor* JobService::PauseFineTuningJob(
    grpc::CallbackServerContext* context,
    const v1::PauseFineTuningJobRequest* request, v1::FineTuningJob* response) {
  return RunCommand(
      context, request,
      request->give_back() ? &JobEngine::PauseAndGiveBack : &JobEngine::Pause,
      response);
}

grpc::ServerUnaryReactor* JobService::ResumeFineTuningJob(
    grpc::CallbackServerContext* context,
    const v1::ResumeFineTuningJobRequest* request,
    v1::FineTuningJob* response) {
  return RunCommand(context, request, &JobEngine::Resume, response);
}

grpc::ServerUnaryReactor* JobService::FinishFineTuningJob(
    grpc::CallbackServerContext* context,
    const v1::FinishFineTuningJobRequest* request,
    v1::FineTuningJob* response) {
  return RunCommand(context, request, &JobEngine::Finish, response);
}

grpc::ServerUnaryReactor* JobService::ExplainFineTuningJob(
    grpc::CallbackServerContext* context,
    const v1::ExplainFineTuningJobRequest* request,
    v1::ExplainFineTuningJobResponse* response) {
  return RunUnary(context, door_, request, [=, this](const Entered& entered) {
    return Explain(entered, response);
  });
}

absl::Status JobService::Explain(
    const Entered& entered, v1::ExplainFineTuningJobResponse* response) const {
  ASSIGN_OR_RETURN(const PoolSnapshot pool, engine_->PoolFor(entered.job->id));
  ASSIGN_OR_RETURN(const auto since, StateSince(*store_, pool.asked));
  *response->mutable_job() = ToProto(pool.asked);
  response->mutable_job()->clear_submitted_text();
  response->mutable_job()->clear_resolved_spec();
  const auto may_see = [&entered](const std::string& project) {
    return entered.caller.RoleIn(project) >= Role::kViewer;
  };
  *response->mutable_explanation() = ExplanationOf(pool, since, {may_see});
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* JobService::UpdateFineTuningJob(
    grpc::CallbackServerContext* context,
    const v1::UpdateFineTuningJobRequest* request,
    v1::FineTuningJob* response) {
  const auto update = [=, this](const Entered& entered) -> absl::Status {
    ASSIGN_OR_RETURN(PriorityChange change, FromProto(*request));
    change.may_be_urgent =
        door_.limits->MayBeUrgent(entered.caller, entered.job->project);
    ASSIGN_OR_RETURN(const JobRecord job,
                     engine_->SetPriority(entered.job->id, change));
    *response = ToProto(job);
    return absl::OkStatus();
  };
  return RunUnary(context, door_, request, update, response);
}

grpc::ServerUnaryReactor* JobService::DeleteFineTuningJob(
    grpc::CallbackServerContext* context,
    const v1::DeleteFineTuningJobRequest* request,
    v1::DeleteFineTuningJobResponse* response) {
  return RunUnary(context, door_, request,
                  [=, this](const Entered& entered) -> absl::Status {
                    ASSIGN_OR_RETURN(
                        const DeletedJob deleted,
                        disk_->DeleteJob(FromProto(*request, entered)));
                    *response = ToProto(deleted);
                    return absl::OkStatus();
                  });
}

grpc::ServerUnaryReactor* JobService::ListFineTuningJobEvents(
    grpc::CallbackServerContext* context,
    const v1::ListFineTuningJobEventsRequest* request,
    v1::ListFineTuningJobEventsResponse* response) {
  return RunUnary(context, door_, request, [=, this](const Entered& entered) {
    return ListEvents(entered.job->id, *request, response);
  });
}

absl::Status JobService::ListEvents(
    const std::string& id, const v1::ListFineTuningJobEventsRequest& request,
    v1::ListFineTuningJobEventsResponse* response) const {
  ASSIGN_OR_RETURN(const EventQuery query, FromProto(request));
  ASSIGN_OR_RETURN(const EventPage page,
                   store_->ListEvents(id, query.after, query.limit));
  for (const JobEvent& event : page.events) {
    *response->add_events() = ToProto(event);
  }
  if (page.more) {
    response->set_next_page_token(PageToken(page.events.back().revision));
  }
  return absl::OkStatus();
}

std::string JobService::JobFile(const JobRecord& job,
                                const std::string& file) const {
  return absl::StrCat(state_dir_, "/jobs/", job.uid, "/", file);
}

grpc::ServerWriteReactor<v1::WatchFineTuningJobsResponse>*
JobService::WatchFineTuningJobs(grpc::CallbackServerContext* context,
                                const v1::WatchFineTuningJobsRequest* request) {
  using Response = v1::WatchFineTuningJobsResponse;
  return BeginStream<Response>(
      door_, context, *request, StreamKind::kFollow,
      [&](const Entered& entered) -> MadeStream<Response> {
        ASSIGN_OR_RETURN(WatchQuery query, FromProto(*request));
        return std::make_shared<WatchStream>(door_.pump, context, store_,
                                             std::move(query), entered);
      });
}

grpc::ServerWriteReactor<v1::StreamFineTuningJobLogsResponse>*
JobService::StreamFineTuningJobLogs(
    grpc::CallbackServerContext* context,
    const v1::StreamFineTuningJobLogsRequest* request) {
  using Response = v1::StreamFineTuningJobLogsResponse;
  return BeginStream<Response>(
      door_, context, *request, StreamKind::kFollow,
      [&](const Entered& entered) -> MadeStream<Response> {
        const JobRecord& job = *entered.job;
        if (request->tail_lines() < 0) {
          return FieldError(FieldReason::kInvalidValue, "tail_lines",
                            "must not be negative");
        }
        return std::make_shared<LogStream>(
            door_.pump, context,
            StreamedFile{.store = store_,
                         .id = job.id,
                         .path = JobFile(job, "log"),
                         .follow = request->follow()},
            request->tail_lines());
      });
}

grpc::ServerWriteReactor<v1::StepMetrics>*
JobService::StreamFineTuningJobMetrics(
    grpc::CallbackServerContext* context,
    const v1::StreamFineTuningJobMetricsRequest* request) {
  using Response = v1::StepMetrics;
  return BeginStream<Response>(
      door_, context, *request, StreamKind::kFollow,
      [&](const Entered& entered) -> MadeStream<Response> {
        const JobRecord& job = *entered.job;
        return std::make_shared<MetricsStream>(
            door_.pump, context,
            StreamedFile{.store = store_,
                         .id = job.id,
                         .path = JobFile(job, "metrics.jsonl"),
                         .follow = request->follow()},
            request->after_step());
      });
}

grpc::ServerWriteReactor<v1::TraceFineTuningJobResponse>*
JobService::TraceFineTuningJob(grpc::CallbackServerContext* context,
                               const v1::TraceFineTuningJobRequest* request) {
  using Response = v1::TraceFineTuningJobResponse;
  return BeginStream<Response>(
      door_, context, *request, StreamKind::kTrace,
      [&](const Entered& entered) -> MadeStream<Response> {
        if (request->steps() < 1 || request->steps() > kMaxTracedSteps) {
          return FieldError(
              FieldReason::kInvalidValue, "steps",
              absl::StrCat(request->steps(), " is not 1 to ", kMaxTracedSteps));
        }
        return std::make_shared<TraceStream>(
            door_.pump, context,
            engine_->TraceJob(entered.job->id, request->steps()),
            [store = store_, entered](const std::string& id) {
              const auto job = store->Get(id);
              return job.ok() && entered.SeesAllOf(*job);
            });
      });
}

}  // namespace roundhouse
