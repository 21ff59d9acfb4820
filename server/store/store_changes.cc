// JobStore: what changes of a job that is there.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "server/store/store.h"
#include "server/store/store_rows.h"

namespace roundhouse {

absl::StatusOr<JobRecord> JobStore::Transition(const std::string& id,
                                               JobState to,
                                               const TransitionInfo& info) {
  RETURN_IF_ERROR(Change(id, [&](Database* db, int64_t number) {
    return ApplyTransition(db, number, to, info);
  }));
  ASSIGN_OR_RETURN(JobRecord job, Get(id));
  if (IsFinal(to)) DropProgress(*JobNumber(id));
  return job;
}

absl::Status JobStore::ApplyTransition(Database* db, int64_t number,
                                       JobState to,
                                       const TransitionInfo& info) {
  RETURN_IF_ERROR(FlushProgress(db, number));
  ASSIGN_OR_RETURN(JobRecord job, SelectJob(db, number, JobTexts::kLeftOut));
  RETURN_IF_ERROR(CheckTransition(job.state, to));
  if (std::exchange(job.progress.memory_kept, info.memory_kept) !=
      info.memory_kept) {
    RETURN_IF_ERROR(WriteProgress(db, number, job.progress));
  }
  RETURN_IF_ERROR(ApplyAttempt(db, job, number, to, info.memory_kept));
  const int64_t now_us = ToMicros(options_.now());
  const bool starts = to == JobState::kLoading && !job.start_time.has_value();
  ASSIGN_OR_RETURN(
      Statement update,
      db->Prepare("UPDATE jobs SET state = ?, reason = ?, message = ?, "
                  "start_us = start_us + ?, end_us = ? WHERE number = ?"));
  update.Bind(static_cast<int64_t>(to));
  update.Bind(static_cast<int64_t>(info.reason)).Bind(info.message);
  update.Bind(starts ? now_us : int64_t{0});
  update.Bind(IsFinal(to) ? now_us : int64_t{0}).Bind(number);
  RETURN_IF_ERROR(update.Run());
  return InsertEvent(db,
                     {.type = "state",
                      .state = to,
                      .reason = info.reason,
                      .message = info.message,
                      .step = job.progress.step},
                     number);
}

// An attempt begins with LOADING and ends with the first state in which no
// process works for the job.
absl::Status JobStore::ApplyAttempt(Database* db, const JobRecord& job,
                                    int64_t number, JobState to,
                                    bool memory_kept) {
  const int64_t now_us = ToMicros(options_.now());
  if (to == JobState::kLoading) {
    ASSIGN_OR_RETURN(
        Statement count,
        db->Prepare(
            "UPDATE jobs SET attempts = attempts + 1 WHERE number = ?"));
    RETURN_IF_ERROR(count.Bind(number).Run());
    ASSIGN_OR_RETURN(
        Statement insert,
        db->Prepare("INSERT INTO attempts VALUES (?, ?, ?, 0, 0)"));
    return insert.Bind(number)
        .Bind(int64_t{job.attempts} + 1)
        .Bind(now_us)
        .Run();
  }
  if (job.attempts == 0 || IsActive(to) || memory_kept) return absl::OkStatus();
  ASSIGN_OR_RETURN(Statement end,
                   db->Prepare("UPDATE attempts SET end_us = ?, end_state = ? "
                               "WHERE job = ? AND attempt = ? AND end_us = 0"));
  end.Bind(now_us).Bind(static_cast<int64_t>(to)).Bind(number);
  return end.Bind(int64_t{job.attempts}).Run();
}

absl::Status JobStore::SetDetails(const std::string& id,
                                  const JobDetails& details) {
  return Change(id, [&](Database* db, int64_t number) -> absl::Status {
    ASSIGN_OR_RETURN(JobRecord job, SelectJob(db, number, JobTexts::kLeftOut));
    if (details.output_path.has_value()) job.output_path = *details.output_path;
    if (details.dataset.has_value()) job.dataset = details.dataset;
    job.reason = details.reason.value_or(job.reason);
    job.message = details.message.value_or(job.message);
    ASSIGN_OR_RETURN(
        Statement update,
        db->Prepare("UPDATE jobs SET output_path = ?, dataset = ?, "
                    "reason = ?, message = ? WHERE number = ?"));
    update.Bind(job.output_path).Bind(DatasetToJson(job.dataset));
    update.Bind(static_cast<int64_t>(job.reason)).Bind(job.message);
    update.Bind(number);
    RETURN_IF_ERROR(update.Run());
    return InsertEvent(db,
                       {.type = "details",
                        .state = job.state,
                        .reason = job.reason,
                        .step = job.progress.step},
                       number);
  });
}

absl::StatusOr<JobRecord> JobStore::SetPriority(const std::string& id,
                                                const PriorityChange& change) {
  RETURN_IF_ERROR(Change(id, [&](Database* db, int64_t number) -> absl::Status {
    ASSIGN_OR_RETURN(JobRecord job, SelectJob(db, number, JobTexts::kLeftOut));
    if (IsFinal(job.state)) {
      return absl::FailedPreconditionError(
          absl::StrCat(id, " has ended (", JobStateName(job.state),
                       "): its priority means nothing any more"));
    }
    if (change.revision != 0 && change.revision != job.revision) {
      return absl::AbortedError(absl::StrCat(id, " has revision ", job.revision,
                                             ", not ", change.revision,
                                             ": look at it again"));
    }
    if (change.priority == job.priority) return absl::OkStatus();
    if (change.priority == Priority::kUrgent) {
      RETURN_IF_ERROR(change.may_be_urgent(db));
    }
    ASSIGN_OR_RETURN(
        Statement update,
        db->Prepare("UPDATE jobs SET priority = ? WHERE number = ?"));
    update.Bind(static_cast<int64_t>(change.priority)).Bind(number);
    RETURN_IF_ERROR(update.Run());
    Overlay(number, &job);
    return InsertEvent(db,
                       {.type = "priority",
                        .state = job.state,
                        .reason = job.reason,
                        .message = PriorityName(change.priority),
                        .step = job.progress.step},
                       number);
  }));
  return Get(id);
}

absl::Status JobStore::AddEvent(const std::string& id, const std::string& type,
                                const std::string& message) {
  return Change(id, [&](Database* db, int64_t number) -> absl::Status {
    ASSIGN_OR_RETURN(JobRecord job, SelectJob(db, number, JobTexts::kLeftOut));
    Overlay(number, &job);
    return InsertEvent(db,
                       {.type = type,
                        .state = job.state,
                        .message = message,
                        .step = job.progress.step},
                       number);
  });
}

absl::Status JobStore::AddCheckpoint(const std::string& id,
                                     const CheckpointRecord& checkpoint) {
  return Change(id, [&](Database* db, int64_t number) -> absl::Status {
    RETURN_IF_ERROR(FlushProgress(db, number));
    ASSIGN_OR_RETURN(const JobRecord job,
                     SelectJob(db, number, JobTexts::kLeftOut));
    ASSIGN_OR_RETURN(
        Statement insert,
        db->Prepare("INSERT OR REPLACE INTO checkpoints VALUES (?,?,?,?,?)"));
    insert.Bind(number).Bind(checkpoint.step).Bind(checkpoint.path);
    insert.Bind(checkpoint.size_bytes).Bind(ToMicros(options_.now()));
    RETURN_IF_ERROR(insert.Run());
    ASSIGN_OR_RETURN(
        Statement update,
        db->Prepare("UPDATE jobs SET last_checkpoint = ? WHERE number = ?"));
    RETURN_IF_ERROR(update.Bind(checkpoint.path).Bind(number).Run());
    return InsertEvent(db,
                       {.type = "checkpoint",
                        .state = job.state,
                        .message = checkpoint.path,
                        .step = checkpoint.step},
                       number);
  });
}

absl::Status JobStore::KeepCheckpoints(const std::string& id,
                                       const std::vector<int64_t>& steps) {
  return Change(id, [&](Database* db, int64_t number) -> absl::Status {
    ASSIGN_OR_RETURN(
        Statement remove,
        db->Prepare(absl::StrCat("DELETE FROM checkpoints WHERE job = ? AND "
                                 "step <= ? AND step NOT IN (",
                                 absl::StrJoin(steps, ", "), ")")));
    const int64_t newest = *std::max_element(steps.begin(), steps.end());
    RETURN_IF_ERROR(remove.Bind(number).Bind(newest).Run());
    ASSIGN_OR_RETURN(
        Statement update,
        db->Prepare("UPDATE jobs SET last_checkpoint = coalesce((SELECT path "
                    "FROM checkpoints WHERE job = ?1 AND path <> '' "
                    "ORDER BY step DESC LIMIT 1), '') WHERE number = ?1"));
    return update.Bind(number).Run();
  });
}

}  // namespace roundhouse
