#include "server/api/fake_engine.h"

#include "base/status.h"
#include "server/jobs/spec.h"
#include "server/jobs/spec_error.h"

namespace roundhouse {

absl::StatusOr<JobRecord> FakeEngine::Submit(const SubmitRequest& request) {
  ++submits_;
  ASSIGN_OR_RETURN(const JobSpec spec,
                   ParseJobSpec(request.text, request.file_name));
  const ResolvedSpec resolved = ResolvedSpec::Resolve(spec, 4);
  if (spec.batch_size == 999) {
    return FieldError(absl::StatusCode::kResourceExhausted, "HOST_MEMORY",
                      "host_memory", "needs 9 bytes, the limit is 8");
  }
  if (spec.batch_size == 998) {
    return absl::InternalError("secret: host key");
  }
  if (request.validate_only) {
    JobRecord job;
    job.text = request.text;
    job.resolved = resolved.ToJson();
    return job;
  }
  return store_->Create({.text = request.text,
                         .resolved = resolved.ToJson(),
                         .output_name = spec.output_name,
                         .request_id = request.request_id});
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

std::vector<DeviceInfo> FakeEngine::Devices() {
  return {{.index = 0, .kind = "cpu", .state = DeviceState::kUp},
          {.index = 1,
           .kind = "cpu",
           .state = DeviceState::kLost,
           .job_id = "job-1",
           .compute_seconds = 3,
           .bubble_seconds = 1}};
}

ServerInfo FakeEngine::Server() {
  return {.version = "1.2.3",
          .start_time = absl::FromUnixSeconds(5),
          .host_memory_limit_bytes = 100,
          .metrics_address = "127.0.0.1:1"};
}

}  // namespace roundhouse
