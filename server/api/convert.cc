#include "server/api/convert.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "base/upload_names.h"
#include "base/visible_text.h"
#include "server/access/job_names.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

constexpr char kTokenPrefix[] = "after:";
constexpr size_t kMaxTextBytes = 1 << 20;
constexpr size_t kMaxFileNameBytes = 255;
constexpr size_t kMaxUploadedPaths = 128;
// google.protobuf.Timestamp: 0001-01-01T00:00:00Z to 9999-12-31T23:59:59Z.
constexpr int64_t kFirstTimestampSeconds = -62'135'596'800;
constexpr int64_t kLastTimestampSeconds = 253'402'300'799;

absl::Status Invalid(const std::string& field, const std::string& what) {
  return FieldError(FieldReason::kInvalidValue, field, what);
}

bool IsRequestId(const std::string& id) {
  return id.size() <= kMaxRequestIdBytes &&
         std::all_of(id.begin(), id.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '-' || c == '_';
         });
}

absl::Status CheckUploaded(const v1::CreateFineTuningJobRequest& request) {
  if (static_cast<size_t>(request.uploaded_size()) > kMaxUploadedPaths) {
    return Invalid("uploaded",
                   absl::StrCat(request.uploaded_size(), " paths, ",
                                kMaxUploadedPaths, " are the most"));
  }
  for (const auto& [path, name] : request.uploaded()) {
    const auto reference = ParseUploadReference(name);
    if (!reference.ok()) {
      return Invalid("uploaded", std::string(reference.status().message()));
    }
    if (reference->has_value()) continue;
    return Invalid("uploaded",
                   "a value is neither dataset:NAME nor model:NAME");
  }
  return absl::OkStatus();
}

void PutDataset(const DatasetCounts& in, v1::DatasetStats* out) {
  out->set_train_sequences(in.train_sequences);
  out->set_train_tokens(in.train_tokens);
  out->set_train_truncated(in.train_truncated);
  out->set_train_dropped(in.train_dropped);
  out->set_validation_sequences(in.validation_sequences);
  out->set_validation_tokens(in.validation_tokens);
  out->set_validation_truncated(in.validation_truncated);
  out->set_validation_dropped(in.validation_dropped);
  if (in.bigram_validation_loss.has_value()) {
    out->set_bigram_validation_loss(*in.bigram_validation_loss);
  }
  out->set_sha256(in.sha256);
}

double BubbleRatio(double compute, double bubble) {
  return compute + bubble > 0 ? bubble / (compute + bubble) : 0;
}

void PutProgress(const JobProgress& in, v1::FineTuningJob* out) {
  out->set_step(in.step);
  out->set_total_steps(in.total_steps);
  out->set_epoch(in.epoch);
  out->set_tokens(in.tokens);
  out->set_tokens_per_second(in.tokens_per_second);
  if (in.loss.has_value()) out->set_loss(*in.loss);
  if (in.learning_rate.has_value()) out->set_learning_rate(*in.learning_rate);
  if (in.grad_norm.has_value()) out->set_grad_norm(*in.grad_norm);
  if (in.expert_load.has_value()) {
    *out->mutable_expert_load() = ToProto(*in.expert_load);
  }
  if (in.eta.has_value()) *out->mutable_eta() = ToProto(*in.eta);
  for (const DeviceUse& use : in.device_use) {
    v1::JobDeviceUse* d = out->add_device_use();
    d->set_device(use.device);
    d->set_compute_seconds(use.compute_seconds);
    d->set_bubble_seconds(use.bubble_seconds);
    d->set_bubble_ratio(BubbleRatio(use.compute_seconds, use.bubble_seconds));
  }
}

v1::JobPriority ToProto(Priority priority) {
  switch (priority) {
    case Priority::kUrgent:
      return v1::URGENT;
    case Priority::kNormal:
      return v1::NORMAL;
    case Priority::kBackfill:
      break;
  }
  return v1::BACKFILL;
}

absl::StatusOr<Priority> FromProto(v1::JobPriority asked) {
  for (const Priority priority : kPriorities) {
    if (ToProto(priority) == asked) return priority;
  }
  return Invalid("priority", "is none of URGENT, NORMAL, BACKFILL");
}

v1::DeviceState ToProto(DeviceState state) {
  switch (state) {
    case DeviceState::kStarting:
      return v1::STARTING;
    case DeviceState::kUp:
      return v1::UP;
    case DeviceState::kLost:
      return v1::LOST;
    case DeviceState::kTakenOut:
      return v1::FENCED;
  }
  return v1::DEVICE_STATE_UNSPECIFIED;
}

}  // namespace

absl::StatusOr<SubmitRequest> FromProto(
    const v1::CreateFineTuningJobRequest& request) {
  if (request.text().empty()) return Invalid("text", "the job file is empty");
  if (request.text().size() > kMaxTextBytes) {
    return Invalid(
        "text", absl::StrCat(request.text().size(),
                             " bytes; a job file has at most ", kMaxTextBytes));
  }
  if (!IsRequestId(request.request_id())) {
    return Invalid("request_id",
                   absl::StrCat("must be at most ", kMaxRequestIdBytes,
                                " of letters, digits, '-' and '_'"));
  }
  if (request.file_name().size() > kMaxFileNameBytes) {
    return Invalid("file_name",
                   absl::StrCat("has more than ", kMaxFileNameBytes, " bytes"));
  }
  RETURN_IF_ERROR(CheckUploaded(request));
  std::optional<Priority> priority;
  if (request.priority() != v1::JOB_PRIORITY_UNSPECIFIED) {
    ASSIGN_OR_RETURN(priority, FromProto(request.priority()));
  }
  return SubmitRequest{
      .text = request.text(),
      .file_name =
          request.file_name().empty() ? "job file" : request.file_name(),
      .request_id = request.request_id(),
      .uploaded = {request.uploaded().begin(), request.uploaded().end()},
      .priority = priority};
}

absl::StatusOr<PriorityChange> FromProto(
    const v1::UpdateFineTuningJobRequest& request) {
  ASSIGN_OR_RETURN(const Priority priority, FromProto(request.priority()));
  if (request.revision() < 0) {
    return Invalid("revision", "must not be negative");
  }
  return PriorityChange{.priority = priority, .revision = request.revision()};
}

absl::StatusOr<ListQuery> FromProto(
    const v1::ListFineTuningJobsRequest& request) {
  ListQuery query;
  ASSIGN_OR_RETURN(query.limit, PageSize(request.page_size()));
  ASSIGN_OR_RETURN(query.before, PagePosition(request.page_token()));
  for (int number : request.states()) {
    const auto state = JobStateFromNumber(number);
    if (!state.has_value()) {
      return Invalid("states", absl::StrCat("there is no state ", number));
    }
    query.states.push_back(*state);
  }
  return query;
}

absl::StatusOr<EventQuery> FromProto(
    const v1::ListFineTuningJobEventsRequest& request) {
  EventQuery query;
  ASSIGN_OR_RETURN(query.limit, PageSize(request.page_size()));
  ASSIGN_OR_RETURN(const auto position, PagePosition(request.page_token()));
  query.after = position.value_or(0);
  return query;
}

absl::StatusOr<WatchQuery> FromProto(
    const v1::WatchFineTuningJobsRequest& request) {
  WatchQuery query{.from_revision = request.from_revision(),
                   .until_final = request.until_final()};
  if (query.from_revision < 0) {
    return Invalid("from_revision", "must not be negative");
  }
  if (request.name().empty() && query.until_final) {
    return Invalid("until_final", "needs the name of a job");
  }
  return query;
}

absl::StatusOr<int> PageSize(int32_t asked) {
  if (asked < 0) return Invalid("page_size", "must not be negative");
  if (asked == 0) return kDefaultPageSize;
  return std::min<int>(asked, kMaxPageSize);
}

absl::StatusOr<std::optional<int64_t>> PagePosition(const std::string& token) {
  if (token.empty()) return std::optional<int64_t>();
  std::string text;
  int64_t position = 0;
  if (!absl::WebSafeBase64Unescape(token, &text) ||
      !absl::StartsWith(text, kTokenPrefix) ||
      !absl::SimpleAtoi(absl::StripPrefix(text, kTokenPrefix), &position) ||
      position < 0) {
    return Invalid("page_token", "is none that this server gave");
  }
  return std::optional<int64_t>(position);
}

std::string PageToken(int64_t position) {
  return absl::WebSafeBase64Escape(absl::StrCat(kTokenPrefix, position));
}

google::protobuf::Timestamp ToProto(absl::Time time) {
  google::protobuf::Timestamp out;
  const absl::Time valid =
      std::clamp(time, absl::FromUnixSeconds(kFirstTimestampSeconds),
                 absl::FromUnixSeconds(kLastTimestampSeconds) +
                     absl::Nanoseconds(999'999'999));
  // Rounds down, so that nanoseconds are not negative before 1970.
  out.set_seconds(absl::ToUnixSeconds(valid));
  out.set_nanos(static_cast<int32_t>(
      absl::ToInt64Nanoseconds(valid - absl::FromUnixSeconds(out.seconds()))));
  return out;
}

v1::FineTuningJob ToProto(const JobRecord& job) {
  v1::FineTuningJob out;
  if (!job.id.empty()) out.set_name(JobName(job.project, job.id));
  out.set_uid(job.uid);
  // The numbers are the same; convert_test holds them together.
  out.set_state(static_cast<v1::JobState>(job.state));
  out.set_reason(static_cast<v1::JobReason>(job.reason));
  out.set_message(ValidUtf8(job.message));
  *out.mutable_create_time() = ToProto(job.create_time);
  if (job.start_time.has_value()) {
    *out.mutable_start_time() = ToProto(*job.start_time);
  }
  if (job.end_time.has_value()) {
    *out.mutable_end_time() = ToProto(*job.end_time);
  }
  out.set_submitted_text(job.text);
  out.set_resolved_spec(ValidUtf8(job.resolved));
  out.set_output_name(job.output_name);
  out.set_output_path(ValidUtf8(job.output_path));
  out.set_last_checkpoint_path(ValidUtf8(job.last_checkpoint_path));
  out.set_attempts(job.attempts);
  out.set_revision(job.revision);
  if (job.dataset.has_value()) PutDataset(*job.dataset, out.mutable_dataset());
  PutProgress(job.progress, &out);
  if (job.state == JobState::kValidating) {
    out.set_data_read(job.progress.data_read);
  }
  if (job.state == JobState::kPaused) {
    out.set_memory(job.progress.memory_kept ? v1::KEPT : v1::GIVEN_BACK);
  }
  out.set_owner(ValidUtf8(job.owner));
  out.set_project(job.project);
  out.set_priority(ToProto(job.priority));
  return out;
}

v1::FineTuningJob Outline(v1::FineTuningJob job) {
  // What stays is named, so that a new field does not.
  v1::FineTuningJob out;
  out.set_name(job.name());
  out.set_state(job.state());
  out.set_reason(job.reason());
  if (job.has_create_time()) *out.mutable_create_time() = job.create_time();
  if (job.has_start_time()) *out.mutable_start_time() = job.start_time();
  if (job.has_end_time()) *out.mutable_end_time() = job.end_time();
  if (job.has_eta()) *out.mutable_eta() = job.eta();
  out.set_step(job.step());
  out.set_total_steps(job.total_steps());
  out.set_epoch(job.epoch());
  out.set_tokens(job.tokens());
  out.set_tokens_per_second(job.tokens_per_second());
  out.set_data_read(job.data_read());
  out.set_revision(job.revision());
  out.set_attempts(job.attempts());
  out.set_memory(job.memory());
  out.mutable_device_use()->Swap(job.mutable_device_use());
  out.set_owner(job.owner());
  out.set_project(job.project());
  out.set_priority(job.priority());
  out.set_outline(true);
  return out;
}

v1::FineTuningJobEvent ToProto(const JobEvent& event) {
  v1::FineTuningJobEvent out;
  out.set_revision(event.revision);
  *out.mutable_time() = ToProto(event.time);
  out.set_type(event.type);
  out.set_state(static_cast<v1::JobState>(event.state));
  out.set_reason(static_cast<v1::JobReason>(event.reason));
  out.set_message(ValidUtf8(event.message));
  out.set_step(event.step);
  return out;
}

v1::ExpertLoad ToProto(const ExpertLoadSummary& load) {
  v1::ExpertLoad out;
  out.set_max_over_mean(load.max_over_mean);
  out.set_layer(load.layer);
  out.set_entropy(load.entropy);
  out.set_unhit_experts(load.unhit);
  return out;
}

v1::JobNeeds ToProto(const JobNeeds& needs) {
  v1::JobNeeds out;
  out.set_host_base_bytes(needs.host_base_bytes);
  out.set_host_state_bytes(needs.host_state_bytes);
  out.set_host_buffer_bytes(needs.host_buffer_bytes);
  out.set_host_wanted_buffer_bytes(needs.host_wanted_buffer_bytes);
  out.set_backward_inputs(needs.backward_inputs);
  out.set_saved_inputs(needs.saved_inputs);
  out.set_host_table_bytes(needs.host_table_bytes);
  out.set_host_limit_bytes(needs.host_limit_bytes);
  out.set_device_slot_bytes(needs.device_slot_bytes);
  out.set_device_limit_bytes(needs.device_limit_bytes);
  out.set_checkpoint_bytes(needs.checkpoint_bytes);
  out.set_checkpoint_count(needs.checkpoint_count);
  out.set_export_bytes(needs.export_bytes);
  out.set_disk_bytes(needs.disk_bytes);
  out.set_disk_free_bytes(needs.disk_free_bytes);
  out.set_disk_path(needs.disk_path);
  out.set_parameters(needs.parameters);
  out.set_trainable_parameters(needs.trainable_parameters);
  out.set_steps(needs.steps);
  if (!needs.step_seconds.has_value()) return out;
  out.set_step_seconds(*needs.step_seconds);
  out.set_measured_in(needs.measured_in);
  return out;
}

v1::Device ToProto(const DeviceInfo& device, const std::string& job) {
  v1::Device out;
  out.set_name(absl::StrCat("devices/", device.index));
  out.set_index(device.index);
  out.set_kind(device.kind);
  out.set_state(ToProto(device.state));
  out.set_memory_limit_bytes(device.memory_limit_bytes);
  out.set_memory_used_bytes(device.memory_used_bytes);
  out.set_threads(device.threads);
  out.set_worker_pid(device.worker_pid);
  out.set_worker_restarts(device.worker_restarts);
  out.set_job(job);
  out.set_compute_seconds(device.compute_seconds);
  out.set_bubble_seconds(device.bubble_seconds);
  out.set_idle_seconds(device.idle_seconds);
  out.set_bubble_ratio(
      BubbleRatio(device.compute_seconds, device.bubble_seconds));
  out.set_h2d_bytes(device.h2d_bytes);
  out.set_d2h_bytes(device.d2h_bytes);
  out.set_slots(device.slots);
  for (const auto& [cause, seconds] : device.bubble_causes) {
    v1::BubbleCause* const added = out.add_bubble_causes();
    added->set_cause(cause);
    added->set_seconds(seconds);
  }
  out.set_fenced_seconds(device.fenced_seconds);
  out.set_filled_bubble_seconds(device.filled_bubble_seconds);
  out.set_product_name(device.product_name);
  out.set_uuid(device.uuid);
  return out;
}

}  // namespace roundhouse
