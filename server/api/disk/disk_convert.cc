#include "server/api/disk/disk_convert.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/visible_text.h"
#include "server/access/job_names.h"
#include "server/api/convert.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

static_assert(static_cast<int>(DiskKind::kCheckpoint) ==
                  v1::DISK_KIND_CHECKPOINT &&
              static_cast<int>(DiskKind::kOutput) == v1::DISK_KIND_OUTPUT &&
              static_cast<int>(DiskKind::kPreparedData) ==
                  v1::DISK_KIND_PREPARED_DATA &&
              static_cast<int>(DiskKind::kLogs) == v1::DISK_KIND_LOGS &&
              static_cast<int>(DiskKind::kExport) == v1::DISK_KIND_EXPORT &&
              static_cast<int>(DiskKind::kUpload) == v1::DISK_KIND_UPLOAD &&
              static_cast<int>(DiskKind::kPreparedCache) ==
                  v1::DISK_KIND_PREPARED_CACHE &&
              static_cast<int>(DiskKind::kStore) == v1::DISK_KIND_STORE);

v1::DiskPart PartToProto(const DiskPart& part) {
  v1::DiskPart out;
  out.set_kind(static_cast<v1::DiskKind>(part.kind));
  out.set_name(ValidUtf8(part.name));
  out.set_owner(ValidUtf8(part.owner));
  out.set_project(ValidUtf8(part.project));
  out.set_size_bytes(part.bytes);
  out.set_step(part.step);
  out.set_partial(part.partial);
  return out;
}

v1::Checkpoint CheckpointToProto(const JobCheckpoint& checkpoint) {
  v1::Checkpoint out;
  out.set_job(JobName(checkpoint.project, checkpoint.job_id));
  out.set_step(checkpoint.step);
  out.set_size_bytes(checkpoint.bytes);
  *out.mutable_create_time() = ToProto(checkpoint.create_time);
  out.set_owner(ValidUtf8(checkpoint.owner));
  out.set_project(ValidUtf8(checkpoint.project));
  return out;
}

}  // namespace

absl::StatusOr<OldCheckpointsQuery> FromProto(
    const v1::ListOldCheckpointsRequest& request, const Caller& caller,
    absl::Time now) {
  OldCheckpointsQuery query{.keep = request.keep(),
                            .caller = caller,
                            .everybody = request.everybody(),
                            .project = request.project()};
  if (request.keep() < 0) {
    return FieldError(FieldReason::kInvalidValue, "keep",
                      "must not be negative");
  }
  if (request.older_than_seconds() < 0) {
    return FieldError(FieldReason::kInvalidValue, "older_than_seconds",
                      "must not be negative");
  }
  if (request.older_than_seconds() > 0) {
    query.before = now - absl::Seconds(request.older_than_seconds());
  }
  if (request.everybody() && !caller.admin) {
    return absl::PermissionDeniedError(
        "everybody: only an admin may see the checkpoints of all");
  }
  ASSIGN_OR_RETURN(query.before_job, PagePosition(request.page_token()));
  return query;
}

absl::StatusOr<DeleteCheckpointsRequest> FromProto(
    const v1::DeleteCheckpointsRequest& request, const Entered& entered) {
  const auto count = static_cast<size_t>(request.steps_size());
  if (count < 1 || count > kMaxDeletedCheckpoints) {
    return FieldError(
        FieldReason::kInvalidValue, "steps",
        absl::StrCat(count, " is not 1 to ", kMaxDeletedCheckpoints));
  }
  DeleteCheckpointsRequest out{.job = *entered.job,
                               .who = entered.caller.owner()};
  out.steps.assign(request.steps().begin(), request.steps().end());
  std::sort(out.steps.begin(), out.steps.end());
  out.steps.erase(std::unique(out.steps.begin(), out.steps.end()),
                  out.steps.end());
  return out;
}

absl::StatusOr<DiskUsageQuery> FromProto(const v1::GetDiskUsageRequest& request,
                                         const Caller& caller) {
  DiskUsageQuery query{.caller = caller, .project = request.project()};
  if (absl::WebSafeBase64Unescape(request.page_token(), &query.page_token)) {
    return query;
  }
  return FieldError(FieldReason::kInvalidValue, "page_token",
                    "is none that this server gave");
}

DeleteJobRequest FromProto(const v1::DeleteFineTuningJobRequest& request,
                           const Entered& entered) {
  return {.job = *entered.job,
          .who = entered.caller.owner(),
          .output = request.output(),
          .look_only = request.validate_only()};
}

v1::DeleteFineTuningJobResponse ToProto(const DeletedJob& deleted) {
  v1::DeleteFineTuningJobResponse out;
  for (const DiskPart& part : deleted.parts) {
    *out.add_parts() = PartToProto(part);
  }
  if (deleted.kept_output.has_value()) {
    *out.mutable_kept_output() = PartToProto(*deleted.kept_output);
  }
  out.set_kept_output_path(ValidUtf8(deleted.kept_output_path));
  out.set_left(ValidUtf8(deleted.left));
  return out;
}

v1::ListOldCheckpointsResponse ToProto(const OldCheckpoints& page) {
  v1::ListOldCheckpointsResponse out;
  for (const JobCheckpoint& checkpoint : page.checkpoints) {
    *out.add_checkpoints() = CheckpointToProto(checkpoint);
  }
  if (page.next_before_job.has_value()) {
    out.set_next_page_token(PageToken(*page.next_before_job));
  }
  return out;
}

v1::DeleteCheckpointsResponse ToProto(const DeletedCheckpoints& deleted) {
  v1::DeleteCheckpointsResponse out;
  for (const JobCheckpoint& checkpoint : deleted.checkpoints) {
    *out.add_checkpoints() = CheckpointToProto(checkpoint);
  }
  out.set_left(ValidUtf8(deleted.left));
  return out;
}

v1::GetDiskUsageResponse ToProto(const DiskUsagePage& page) {
  v1::GetDiskUsageResponse out;
  for (const DiskPart& part : page.parts) {
    *out.add_parts() = PartToProto(part);
  }
  out.set_next_page_token(absl::WebSafeBase64Escape(page.next_page_token));
  out.set_disk_free_bytes(page.disk_free_bytes);
  out.set_disk_total_bytes(page.disk_total_bytes);
  return out;
}

}  // namespace roundhouse
