#include "server/removal/remover.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/files/durable_file.h"
#include "base/files/file_site.h"
#include "base/files/remove_tree.h"
#include "base/kill_point.h"
#include "base/log.h"
#include "base/path_exists.h"
#include "base/status.h"
#include "server/weights/checkpoint.h"
#include "server/weights/output_owner.h"

namespace roundhouse {
namespace {

// What another thread removes at the same time, as the sweep after a job's end
// does, is no failure the second time.
absl::Status RemoveAll(const std::string& path) {
  if (RemoveTree(kRemovalRemove, path).ok()) return absl::OkStatus();
  return RemoveTree(kRemovalRemove, path);
}

// Under another name first, so that what is left of it is nothing.
absl::Status RemoveUnder(const std::string& path,
                         const std::string& temporary) {
  RETURN_IF_ERROR(RemoveAll(temporary));
  RETURN_IF_ERROR(
      RenameDurably(kRemovalRename, path, temporary, RenameMode::kKeep));
  KillPoint("removal.renamed");
  return RemoveAll(temporary);
}

// As people call a job's own folder.
absl::Status ByName(const JobRecord& job, const absl::Status& status) {
  return absl::Status(
      status.code(),
      absl::StrReplaceAll(status.message(),
                          {{absl::StrCat("jobs/", job.uid), job.id}}));
}

std::string LeftText(const absl::Status& status) {
  if (status.ok()) return "";
  RH_LOG(kWarning) << "deleting: " << status.message();
  return std::string(status.message());
}

void Tell(const std::string& what, const absl::Status& ended) {
  if (ended.ok()) {
    RH_LOG(kInfo) << what << ": its files are gone";
  } else {
    RH_LOG(kError) << what << ": " << ended.message();
  }
}

}  // namespace

class Remover::Turn {
 public:
  Turn(Remover& remover, const std::string& uid)
      : remover_(remover), uid_(uid) {
    MutexLock lock(remover_.mutex_);
    mine_ = remover_.busy_.insert(uid_).second;
  }
  ~Turn() {
    if (!mine_) return;
    MutexLock lock(remover_.mutex_);
    remover_.busy_.erase(uid_);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  absl::Status Check(const std::string& job) const {
    if (mine_) return absl::OkStatus();
    return absl::AbortedError(
        absl::StrCat("another call deletes of ", job, " now; try again"));
  }

 private:
  Remover& remover_;
  const std::string uid_;
  bool mine_ = false;
};

Remover::Remover(JobStore& store, const JobPaths& paths, Readings& readings)
    : store_(store),
      paths_(paths),
      readings_(readings),
      use_(paths.state_dir()),
      state_(paths.state_dir()) {}

absl::StatusOr<Remover::Used> Remover::FindUsed() const {
  std::vector<std::string> names;
  RETURN_IF_ERROR(store_.ReadWith([&](Database* db) -> absl::Status {
    ASSIGN_OR_RETURN(names, use_.UsedNames(db));
    return absl::OkStatus();
  }));
  return Used(std::move(names), state_, readings_);
}

absl::Status Remover::CheckUnused(const JobRecord& job,
                                  const std::vector<std::string>& paths) const {
  RETURN_IF_ERROR(ByName(job, readings_.CheckUnread(paths)));
  return store_.ReadWith(
      [&](Database* db) { return CheckNoUser(db, job, paths); });
}

absl::Status Remover::CheckNoUser(Database* db, const JobRecord& job,
                                  const std::vector<std::string>& paths) const {
  return ByName(job, use_.CheckUnused(db, paths));
}

absl::StatusOr<ReadingTicket> Remover::Close(
    const JobRecord& job, const std::vector<std::string>& paths) {
  auto ticket = readings_.Close(paths);
  if (!ticket.ok()) return ByName(job, ticket.status());
  return ticket;
}

absl::StatusOr<std::string> Remover::RemoveJob(const JobRecord& job,
                                               const JobRemains& remains,
                                               Output output,
                                               const std::string& who) {
  const Turn turn(*this, job.uid);
  RETURN_IF_ERROR(turn.Check(job.id));
  // Another call may have been first.
  RETURN_IF_ERROR(store_.Get(job.id).status());
  const bool with_output =
      output == Output::kRemoved && !remains.output.empty();
  std::vector<std::string> going = {paths_.Directory(job)};
  if (with_output) going.push_back(remains.output);
  ASSIGN_OR_RETURN(const ReadingTicket ticket, Close(job, going));
  const auto may_go = [&](Database* db) { return CheckNoUser(db, job, going); };
  // What can't go is not changed; asked again in the transaction.
  RETURN_IF_ERROR(store_.ReadWith(may_go));
  if (!with_output) RETURN_IF_ERROR(MarkOutput(job, remains));
  KillPoint("removal.output_marked");
  RETURN_IF_ERROR(
      store_.RemoveJob(job.id,
                       {.output_path = with_output ? remains.output : "",
                        .message = absl::StrCat("deleted by ", who)},
                       may_go));
  KillPoint("removal.job_marked");
  return LeftText(
      EndJob({.id = job.id,
              .uid = job.uid,
              .output_path = with_output ? remains.output : std::string()}));
}

absl::Status Remover::MarkOutput(const JobRecord& job,
                                 const JobRemains& remains) {
  if (remains.output.empty() || FindOutput(paths_, job) != remains.output ||
      ReadOutputMark(remains.output).project == job.project) {
    return absl::OkStatus();
  }
  return WriteFileDurably(kRemovalMark,
                          absl::StrCat(remains.output, "/", kOutputOwnerName),
                          KeptOutputJson(job.id, job.uid, job.project));
}

absl::Status Remover::EndJob(const RemovedJob& job) {
  RETURN_IF_ERROR(RemoveOutput(job));
  RETURN_IF_ERROR(RemoveAll(Folder(job.uid)));
  RETURN_IF_ERROR(SyncFolder(kRemovalRemove, paths_.jobs()));
  KillPoint("removal.job_gone");
  return store_.EndRemoveJob(job.id);
}

// Another job may have made one of that name since.
absl::Status Remover::RemoveOutput(const RemovedJob& job) {
  if (job.output_path.empty()) return absl::OkStatus();
  const std::string temporary =
      absl::StrCat(paths_.outputs(), "/", kTemporaryPrefix, job.uid);
  if (!PathExists(job.output_path) || !IsOutputOf(job.output_path, job.uid)) {
    return RemoveAll(temporary);
  }
  return RemoveUnder(job.output_path, temporary);
}

absl::StatusOr<std::string> Remover::RemoveCheckpoints(
    const JobRecord& job, const std::vector<CheckpointRecord>& checkpoints,
    const std::string& who) {
  const Turn turn(*this, job.uid);
  RETURN_IF_ERROR(turn.Check(job.id));
  const std::string directory = paths_.Directory(job);
  ASSIGN_OR_RETURN(std::vector<int64_t> left, StepsOf(job));
  GoingCheckpoints going{.checkpoints = checkpoints};
  std::vector<std::string> paths, names;
  for (const CheckpointRecord& checkpoint : checkpoints) {
    if (std::erase(left, checkpoint.step) == 0) {
      return absl::NotFoundError(
          absl::StrCat(job.id, " has no checkpoint of step ", checkpoint.step));
    }
    paths.push_back(CheckpointPath(directory, checkpoint.step));
    names.push_back(absl::StrCat(checkpoint.step));
  }
  if (!left.empty()) going.last_path = CheckpointPath(directory, left.back());
  going.message = absl::StrCat("checkpoints of steps ",
                               absl::StrJoin(names, ", "), " deleted by ", who);
  ASSIGN_OR_RETURN(const ReadingTicket ticket, Close(job, paths));
  RETURN_IF_ERROR(store_.RemoveCheckpoints(job.id, going, [&](Database* db) {
    return CheckNoUser(db, job, paths);
  }));
  KillPoint("removal.checkpoints_marked");
  absl::Status first;
  for (const CheckpointRecord& checkpoint : checkpoints) {
    const absl::Status ended = EndCheckpoint(
        {.job_id = job.id, .job_uid = job.uid, .step = checkpoint.step});
    if (first.ok()) first = ended;
  }
  return LeftText(first);
}

absl::Status Remover::EndCheckpoint(const RemovedCheckpoint& checkpoint) {
  const std::string path =
      CheckpointPath(Folder(checkpoint.job_uid), checkpoint.step);
  const std::string temporary = TemporaryName(path);
  RETURN_IF_ERROR(PathExists(path) ? RemoveUnder(path, temporary)
                                   : RemoveAll(temporary));
  return store_.EndRemoveCheckpoint(checkpoint.job_id, checkpoint.step);
}

void Remover::FinishAll() {
  const auto jobs = store_.RemovedJobs();
  const auto checkpoints = store_.RemovedCheckpoints();
  for (const absl::Status& read : {jobs.status(), checkpoints.status()}) {
    if (!read.ok()) RH_LOG(kError) << "what was deleted: " << read.message();
  }
  if (!jobs.ok() || !checkpoints.ok()) return;
  for (const RemovedJob& job : *jobs) {
    std::vector<std::string> going = {Folder(job.uid)};
    if (!job.output_path.empty()) going.push_back(job.output_path);
    Tell(absl::StrCat(job.id, ", which was deleted"),
         Alone(job.id, job.uid, going, [&] { return EndJob(job); }));
  }
  for (const RemovedCheckpoint& checkpoint : *checkpoints) {
    Tell(absl::StrCat(checkpoint.job_id, ", deleted checkpoint of step ",
                      checkpoint.step),
         Alone(checkpoint.job_id, checkpoint.job_uid,
               {CheckpointPath(Folder(checkpoint.job_uid), checkpoint.step)},
               [&] { return EndCheckpoint(checkpoint); }));
  }
}

absl::Status Remover::Alone(const std::string& job, const std::string& uid,
                            const std::vector<std::string>& going,
                            const std::function<absl::Status()>& end) {
  const Turn turn(*this, uid);
  RETURN_IF_ERROR(turn.Check(job));
  ASSIGN_OR_RETURN(const ReadingTicket ticket, readings_.Close(going));
  return end();
}

std::string Remover::Folder(const std::string& uid) const {
  return absl::StrCat(paths_.jobs(), "/", uid);
}

absl::StatusOr<std::vector<int64_t>> Remover::StepsOf(
    const JobRecord& job) const {
  ASSIGN_OR_RETURN(std::vector<int64_t> steps,
                   FindCheckpointSteps(paths_.Directory(job)));
  ASSIGN_OR_RETURN(const auto going, store_.RemovedCheckpoints());
  for (const RemovedCheckpoint& one : going) {
    if (one.job_uid == job.uid) std::erase(steps, one.step);
  }
  return steps;
}

}  // namespace roundhouse
