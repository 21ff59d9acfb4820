#include "server/removal/disk_keeper.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "server/access/job_names.h"
#include "server/spec/spec_error.h"
#include "server/weights/checkpoint.h"

namespace roundhouse {
namespace {

std::vector<JobState> EndedStates() {
  std::vector<JobState> states = AllJobStates();
  std::erase_if(states, [](JobState state) { return !IsFinal(state); });
  return states;
}

// When it was made, as far as the disk knows.
absl::Time TimeOf(const std::string& directory) {
  struct stat info;
  if (stat(directory.c_str(), &info) != 0) return WallTime();
  return absl::TimeFromTimespec(info.st_mtim);
}

bool IsAsked(const JobRecord& job, const OldCheckpointsQuery& query) {
  return (query.everybody || job.owner == query.caller.owner()) &&
         (query.project.empty() || job.project == query.project) &&
         query.caller.RoleIn(job.project) >= Role::kMember;
}

JobCheckpoint ToCheckpoint(const JobRecord& job,
                           const CheckpointRecord& checkpoint) {
  return {.job_id = job.id,
          .owner = job.owner,
          .project = job.project,
          .step = checkpoint.step,
          .bytes = checkpoint.size_bytes,
          .create_time = checkpoint.create_time};
}

}  // namespace

std::vector<DiskPart> PartsOf(const JobRecord& job, const JobRemains& remains) {
  std::vector<DiskPart> parts;
  const auto add = [&](DiskKind kind, const TreeBytes& bytes, int64_t step) {
    parts.push_back({.kind = kind,
                     .name = JobName(job.project, job.id),
                     .owner = job.owner,
                     .project = job.project,
                     .bytes = bytes.own,
                     .step = step,
                     .partial = bytes.partial});
  };
  TreeBytes others = remains.broken;
  for (const auto& [step, bytes] : remains.checkpoints) {
    if (parts.size() < kCheckpointsOfPage) {
      add(DiskKind::kCheckpoint, bytes, step);
    } else {
      others += bytes;
    }
  }
  if (others.own > 0) add(DiskKind::kCheckpoint, others, 0);
  add(DiskKind::kPreparedData, remains.data, 0);
  add(DiskKind::kLogs, remains.logs, 0);
  return parts;
}

DiskPart OutputPart(const JobRecord& job, int64_t bytes) {
  return {.kind = DiskKind::kOutput,
          .name = JobName(job.project, job.id),
          .owner = job.owner,
          .project = job.project,
          .bytes = bytes};
}

DiskKeeper::DiskKeeper(const World& world, Calls calls)
    : world_(world), calls_(std::move(calls)) {}

absl::StatusOr<DiskKeeper::Turn> DiskKeeper::Begin(const std::string& who) {
  MutexLock lock(mutex_);
  if (busy_.size() >= kDiskCallsAtOnce || !busy_.insert(who).second) {
    return FieldError(
        absl::StatusCode::kAborted, FieldReason::kTryLater, "",
        absl::StrCat("another call of ", who, " looks at the disk now, or ",
                     kDiskCallsAtOnce, " of all; try again"));
  }
  return Turn(this, [this, who](const void*) {
    MutexLock ended(mutex_);
    busy_.erase(who);
  });
}

absl::Status DiskKeeper::CheckOver(const JobRecord& job) const {
  if (IsFinal(job.state)) return calls_.check_over(job.id);
  return absl::FailedPreconditionError(absl::StrCat(
      job.id, " is ", JobStateName(job.state),
      ": it has not ended; cancel it first: roundhouse cancel ", job.id));
}

absl::StatusOr<DeletedJob> DiskKeeper::DeleteJob(
    const DeleteJobRequest& request) {
  ASSIGN_OR_RETURN(const Turn turn, Begin(request.who));
  const JobRecord& job = request.job;
  RETURN_IF_ERROR(CheckOver(job));
  const JobRemains remains = FindRemains(world_.paths, job);
  DeletedJob deleted{.parts = PartsOf(job, remains)};
  if (!remains.output.empty()) {
    DiskPart part = OutputPart(job, remains.output_bytes.own);
    if (request.output) {
      deleted.parts.push_back(std::move(part));
    } else {
      deleted.kept_output = std::move(part);
      deleted.kept_output_path = remains.output;
    }
  }
  if (request.look_only) {
    std::vector<std::string> going = {world_.paths.Directory(job)};
    if (request.output && !remains.output.empty()) {
      going.push_back(remains.output);
    }
    RETURN_IF_ERROR(world_.remover.CheckUnused(job, going));
    return deleted;
  }
  ASSIGN_OR_RETURN(deleted.left, world_.remover.RemoveJob(
                                     job, remains,
                                     request.output ? Remover::Output::kRemoved
                                                    : Remover::Output::kKept,
                                     request.who));
  calls_.gone(job.id);
  return deleted;
}

absl::StatusOr<std::vector<CheckpointRecord>> DiskKeeper::Checkpoints(
    const JobRecord& job) const {
  std::map<int64_t, CheckpointRecord> rows;
  ASSIGN_OR_RETURN(const std::vector<CheckpointRecord> listed,
                   world_.store.ListCheckpoints(job.id));
  for (const CheckpointRecord& row : listed) rows[row.step] = row;
  const std::string directory = world_.paths.Directory(job);
  ASSIGN_OR_RETURN(const std::vector<int64_t> steps,
                   world_.remover.StepsOf(job));
  std::vector<CheckpointRecord> found;
  for (const int64_t step : steps) {
    const std::string path = CheckpointPath(directory, step);
    const auto row = rows.find(step);
    found.push_back({.step = step,
                     .path = path,
                     .size_bytes = CountTree(path).own,
                     .create_time = row == rows.end()
                                        ? TimeOf(path)
                                        : row->second.create_time});
  }
  return found;
}

absl::Status DiskKeeper::AddOld(const JobRecord& job,
                                const OldCheckpointsQuery& query,
                                const Remover::Used& used,
                                OldCheckpoints& page) const {
  ASSIGN_OR_RETURN(std::vector<CheckpointRecord> all, Checkpoints(job));
  all.resize(all.size() -
             std::min(all.size(), static_cast<size_t>(query.keep)));
  for (const CheckpointRecord& checkpoint : all) {
    if (checkpoint.create_time >= query.before) continue;
    if (!used.IsFree(checkpoint.path)) continue;
    page.checkpoints.push_back(ToCheckpoint(job, checkpoint));
  }
  return absl::OkStatus();
}

absl::StatusOr<OldCheckpoints> DiskKeeper::ListOldCheckpoints(
    const OldCheckpointsQuery& query) {
  ASSIGN_OR_RETURN(const Turn turn, Begin(query.caller.owner()));
  ASSIGN_OR_RETURN(
      const JobPage jobs,
      world_.store.List(EndedStates(), query.before_job, kScannedOfPage));
  OldCheckpoints page{.next_before_job = jobs.next_before};
  ASSIGN_OR_RETURN(const Remover::Used used, world_.remover.FindUsed());
  size_t looked_at = 0;
  for (const JobRecord& job : jobs.jobs) {
    if (job.last_checkpoint_path.empty() || !IsAsked(job, query)) continue;
    if (page.checkpoints.size() >= kCheckpointsOfPage ||
        ++looked_at > kCountedOfPage) {
      page.next_before_job = *JobNumber(job.id) + 1;
      return page;
    }
    const absl::Status added = AddOld(job, query, used, page);
    // One folder that can't be read keeps nobody from the others.
    if (!added.ok()) RH_LOG(kWarning) << job.id << ": " << added.message();
  }
  return page;
}

absl::StatusOr<DeletedCheckpoints> DiskKeeper::DeleteCheckpoints(
    const DeleteCheckpointsRequest& request) {
  ASSIGN_OR_RETURN(const Turn turn, Begin(request.who));
  const JobRecord& job = request.job;
  RETURN_IF_ERROR(CheckOver(job));
  ASSIGN_OR_RETURN(const std::vector<CheckpointRecord> there, Checkpoints(job));
  std::vector<CheckpointRecord> going;
  DeletedCheckpoints deleted;
  for (const int64_t step : request.steps) {
    const auto found =
        std::find_if(there.begin(), there.end(),
                     [step](const auto& one) { return one.step == step; });
    if (found == there.end()) {
      return FieldError(
          absl::StatusCode::kNotFound, FieldReason::kNotFound, "steps",
          absl::StrCat(job.id, " has no checkpoint of step ", step));
    }
    going.push_back(*found);
    deleted.checkpoints.push_back(ToCheckpoint(job, *found));
  }
  ASSIGN_OR_RETURN(deleted.left,
                   world_.remover.RemoveCheckpoints(job, going, request.who));
  return deleted;
}

}  // namespace roundhouse
