#include "server/api/fake_engine.h"

#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/spec/job_file.h"
#include "server/spec/spec.h"
#include "server/spec/spec_error.h"

namespace roundhouse {

absl::StatusOr<SubmitResult> FakeEngine::Submit(const SubmitRequest& request) {
  ++submits_;
  {
    MutexLock lock(mutex_);
    principal_ = request.caller.principal;
  }
  ASSIGN_OR_RETURN(const JobFile file,
                   ReadJobFile(request.text, request.file_name));
  RETURN_IF_ERROR(file.status());
  const JobSpec& spec = file.spec();
  const ResolvedSpec resolved = ResolvedSpec::Resolve(spec, 4);
  if (spec.batch_size == 999) {
    return RequestError(absl::StatusCode::kResourceExhausted,
                        FieldReason::kHostMemory, "host_memory",
                        "needs 9 bytes, the limit is 8");
  }
  if (spec.batch_size == 997) throw std::runtime_error("thrown");
  if (spec.batch_size == 998) {
    return absl::InternalError("secret: host key");
  }
  const Priority priority = request.priority.value_or(spec.priority);
  ASSIGN_OR_RETURN(JobRecord job,
                   store_->Create({.text = request.text,
                                   .resolved = resolved.ToJson(),
                                   .output_name = spec.output_name,
                                   .request_id = request.request_id,
                                   .principal = request.caller.principal,
                                   .owner = request.caller.owner(),
                                   .project = request.project,
                                   .priority = priority,
                                   .may_be_made = [&](Database* db) {
                                     return request.may_be_made(db, priority,
                                                                0);
                                   }}));
  return SubmitResult{std::move(job), file.warnings()};
}

absl::StatusOr<DryRunResult> FakeEngine::DryRun(const SubmitRequest& request) {
  ASSIGN_OR_RETURN(const JobFile file,
                   ReadJobFile(request.text, request.file_name));
  RETURN_IF_ERROR(file.status());
  const JobSpec& spec = file.spec();
  DryRunResult dry;
  dry.warnings = file.warnings();
  dry.job.text = request.text;
  dry.job.resolved = ResolvedSpec::Resolve(spec, 4).ToJson();
  dry.needs = {.host_base_bytes = 1,
               .host_state_bytes = 2,
               .host_buffer_bytes = 3,
               .host_table_bytes = 4,
               .host_limit_bytes = 5,
               .device_slot_bytes = 6,
               .device_limit_bytes = 7,
               .checkpoint_bytes = 8,
               .checkpoint_count = 9,
               .export_bytes = 10,
               .disk_bytes = 11,
               .disk_free_bytes = 12,
               .disk_path = "13",
               .parameters = 14,
               .trainable_parameters = 15,
               .steps = 16,
               .step_seconds = 17.5,
               .measured_in = "projects/default/fineTuningJobs/job-18"};
  dry.first_sequence = {
      .dataset = spec.dataset,
      .model_name_or_path = spec.model_name_or_path,
      .max_length = *ResolvedSpec::Resolve(spec, 4).spec().max_length,
      .samples = 1};
  return dry;
}

absl::StatusOr<JobRecord> FakeEngine::Cancel(const std::string& id) {
  return store_->Transition(id, JobState::kCancelled, {});
}

absl::StatusOr<JobRecord> FakeEngine::Pause(const std::string& id) {
  return store_->Transition(id, JobState::kPaused, {});
}

absl::StatusOr<JobRecord> FakeEngine::Resume(const std::string& id) {
  return store_->Transition(id, JobState::kQueued, {});
}

absl::StatusOr<JobRecord> FakeEngine::Finish(const std::string& id) {
  return store_->Transition(id, JobState::kFinalizing, {});
}

absl::StatusOr<JobRecord> FakeEngine::SetPriority(
    const std::string& id, const PriorityChange& change) {
  return store_->SetPriority(id, change);
}

std::shared_ptr<ExportTask> FakeEngine::Export(const ExportRequest& request) {
  MutexLock lock(mutex_);
  export_request_ = request;
  export_task_ = std::make_shared<ExportTask>();
  asked_.NotifyAll();
  return export_task_;
}

std::string FakeEngine::principal() const {
  MutexLock lock(mutex_);
  return principal_;
}

ExportRequest FakeEngine::export_request() const {
  MutexLock lock(mutex_);
  return export_request_;
}

std::shared_ptr<ExportTask> FakeEngine::AwaitExportTask() {
  MutexLock lock(mutex_);
  while (export_task_ == nullptr) asked_.Wait(mutex_);
  return export_task_;
}

absl::StatusOr<std::string> FakeEngine::FindOutput(const std::string& source,
                                                   const Caller&) {
  const auto found = outputs.find(source);
  if (found != outputs.end()) return found->second;
  return absl::NotFoundError("there is no such output");
}

std::shared_ptr<TraceTask> FakeEngine::TraceJob(const std::string& id,
                                                int64_t steps) {
  MutexLock lock(mutex_);
  trace_request_ = absl::StrCat(id, " ", steps);
  trace_task_ = std::make_shared<TraceTask>();
  asked_.NotifyAll();
  return trace_task_;
}

std::string FakeEngine::trace_request() const {
  MutexLock lock(mutex_);
  return trace_request_;
}

std::shared_ptr<TraceTask> FakeEngine::AwaitTraceTask() {
  MutexLock lock(mutex_);
  while (trace_task_ == nullptr) asked_.Wait(mutex_);
  return trace_task_;
}

void FakeEngine::SetSharing(const Sharing& sharing) {
  MutexLock lock(mutex_);
  sharing_ = sharing;
}

Sharing FakeEngine::sharing() const {
  MutexLock lock(mutex_);
  return sharing_;
}

void FakeEngine::SetDeviceLoans(const DeviceLoanList& loans) {
  MutexLock lock(mutex_);
  device_loans_ = loans;
}

void FakeEngine::ReviveDevice(int device) {
  MutexLock lock(mutex_);
  revived_ = device == 1;
}

absl::StatusOr<PoolSnapshot> FakeEngine::PoolFor(const std::string& id) {
  ASSIGN_OR_RETURN(const JobRecord job, store_->Get(id));
  const JobOwner first = {kDefaultProject, "first"};
  const JobLength length = {.steps = 10, .step_device_seconds = 2};
  SharedUse used{.running = CountOf({first})};
  used.host_bytes.Add(first, 90);
  return PoolSnapshot{
      .now = absl::FromUnixSeconds(1'700'000'000),
      .asked = job,
      .max_running_jobs = 2,
      .places_taken = 1,
      .used = used,
      .queue = {{.id = "job-99", .owner = first, .host_bytes = 60},
                {.id = id,
                 .owner = {job.project, job.owner},
                 .age = 1,
                 .host_bytes = 50}},
      .queue_size = 2,
      .asked_place = 2,
      .active = {{.id = "job-98",
                  .owner = first,
                  .state = JobState::kRunning,
                  .host_bytes = 90,
                  .length = length}},
      .memory_limit_bytes = 100,
      .memory_used_bytes = 95,
      .memory_available_bytes = 5,
      .devices_up = 1};
}

std::vector<DeviceInfo> FakeEngine::Devices() {
  MutexLock lock(mutex_);
  std::vector<DeviceInfo> devices = {
      {.index = 0, .kind = "cpu", .state = DeviceState::kUp},
      {.index = 1,
       .kind = "cpu",
       .state = revived_ ? DeviceState::kStarting : DeviceState::kLost,
       .job_id = "job-1",
       .compute_seconds = 3,
       .bubble_seconds = 1}};
  for (size_t i = 0; i < device_loans_.size(); ++i) {
    if (!device_loans_[i].has_value()) continue;
    devices[i].state = DeviceState::kTakenOut;
  }
  return devices;
}

ServerInfo FakeEngine::Server() {
  return {.version = "1.2.3",
          .start_time = absl::FromUnixSeconds(5),
          .host_memory_limit_bytes = 100,
          .metrics_address = "127.0.0.1:1"};
}

}  // namespace roundhouse
