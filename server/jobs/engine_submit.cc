// Engine: jobs come in.  Any thread.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/byte_text.h"
#include "base/status.h"
#include "server/admission/dry_run.h"
#include "server/jobs/engine.h"
#include "server/spec/job_file.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

// Whether a request's retry may be told of the job that it made.
absl::Status CheckRetry(const JobRecord& made, const SubmitRequest& request) {
  if (made.project != request.project) {
    return FieldError(FieldReason::kRequestIdReused, "request_id",
                      absl::StrCat("was used for a job of project ",
                                   made.project, "; take a new one"));
  }
  if (request.caller.RoleIn(made.project) >= Role::kViewer) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(absl::StrCat(
      made.id, " is in project ", made.project, ", in which you have no role"));
}

}  // namespace

absl::StatusOr<DryRunResult> Engine::DryRun(const SubmitRequest& request) {
  ASSIGN_OR_RETURN(const AdmittedJob checked,
                   admission_->checker().Check(request));
  return DryRunOf(checked, request.text, world_.store, admission_->paths(),
                  world_.pool.device_count(), request.caller);
}

absl::StatusOr<SubmitResult> Engine::Submit(const SubmitRequest& request) {
  ASSIGN_OR_RETURN(const auto known,
                   world_.store.FindRequest(request.caller.principal,
                                            request.request_id, request.text));
  if (known.has_value()) {
    RETURN_IF_ERROR(CheckRetry(*known, request));
    const auto file = ReadJobFile(request.text, request.file_name);
    if (!file.ok()) return SubmitResult{*known};
    return SubmitResult{*known, file->warnings()};
  }
  ASSIGN_OR_RETURN(AdmittedJob admitted, admission_->checker().Check(request));
  const auto checked = std::make_shared<const AdmittedJob>(std::move(admitted));
  if (!reserve_.held()) {
    return FieldError(
        absl::StatusCode::kResourceExhausted, FieldReason::kStorageFull, "",
        absl::StrCat("the disk of ", options_.state_dir,
                     " is full, or may not be written: the server takes no "
                     "job until it can hold ",
                     ByteText(kDiskReserveBytes), " in reserve again"));
  }
  NewJob job;
  job.text = request.text;
  job.resolved = checked->spec.ToJson();
  job.files = SourceFilesToJson(checked->files);
  job.output_name = checked->spec.spec().output_name;
  job.request_id = request.request_id;
  job.principal = request.caller.principal;
  job.owner = request.caller.owner();
  job.project = request.project;
  job.priority = checked->spec.spec().priority;
  job.may_be_made = [&, this](Database* db) -> absl::Status {
    RETURN_IF_ERROR(request.may_be_made(
        db, job.priority, checked->host.ok() ? checked->host->total() : 0));
    RETURN_IF_ERROR(remover_.use().CheckThere(db, job.resolved));
    if (options_.uploads == nullptr) return absl::OkStatus();
    return options_.uploads->CheckThere(db, job.resolved);
  };
  bool created = false;
  absl::StatusOr<JobRecord> record = world_.store.Create(job, &created);
  if (IsStoreRefusal(record.status())) return StoreRefused(record.status());
  RETURN_IF_ERROR(record.status());
  if (!created) RETURN_IF_ERROR(CheckRetry(*record, request));
  if (created) {
    admission_->admitted().Keep(record->id, checked);
    // A daemon that stops between the two takes the job up when it starts.
    world_.loop
        .Post([this, job = *record, warnings = checked->warnings] {
          for (const std::string& warning : warnings) Warn(job, warning);
          validations_.Add(job.id);
          StartNext();
        })
        .IgnoreError();
  }
  return SubmitResult{*std::move(record), checked->warnings};
}

}  // namespace roundhouse
