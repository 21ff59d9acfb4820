// The deleting half of store.h.
//
// A deleted job's row says so in its output_name, and a deleted checkpoint's
// row has no path.  Both are marks that an older daemon can read: it shows such
// a job without texts, and nothing else changes for it.
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/store/store.h"
#include "server/store/store_rows.h"

namespace roundhouse {
namespace {

absl::Status RunFor(Database* db, const char* sql, int64_t number) {
  ASSIGN_OR_RETURN(Statement statement, db->Prepare(sql));
  return statement.Bind(number).Run();
}

// All that refers to the row of a job, but its requests.
absl::Status DropRowsOf(Database* db, int64_t number) {
  for (const char* sql : {"DELETE FROM events WHERE job = ?",
                          "DELETE FROM attempts WHERE job = ?",
                          "DELETE FROM checkpoints WHERE job = ?"}) {
    RETURN_IF_ERROR(RunFor(db, sql, number));
  }
  return absl::OkStatus();
}

absl::StatusOr<JobRecord> SelectEndedJob(Database* db, int64_t number) {
  ASSIGN_OR_RETURN(JobRecord job, SelectJob(db, number, JobTexts::kLeftOut));
  if (IsFinal(job.state)) return job;
  return absl::FailedPreconditionError(absl::StrCat(
      job.id, " is ", JobStateName(job.state), ": it has not ended"));
}

}  // namespace

absl::Status JobStore::RemoveJob(const std::string& id,
                                 const JobRemoval& removal,
                                 const MayWrite& may_go) {
  return Change(id, [&](Database* db, int64_t number) -> absl::Status {
    ASSIGN_OR_RETURN(const JobRecord job, SelectEndedJob(db, number));
    RETURN_IF_ERROR(may_go(db));
    RETURN_IF_ERROR(ForgetRemoved(db));
    RETURN_IF_ERROR(DropRowsOf(db, number));
    // From now on end_us says when it was deleted.
    ASSIGN_OR_RETURN(
        Statement update,
        db->Prepare("UPDATE jobs SET output_name = ?, output_path = ?, "
                    "end_us = ?, message = '', text = '', resolved = '', "
                    "files = '', last_checkpoint = '', dataset = '' "
                    "WHERE number = ?"));
    update.Bind(std::string(kRemoving)).Bind(removal.output_path);
    RETURN_IF_ERROR(update.Bind(ToMicros(options_.now())).Bind(number).Run());
    return InsertEvent(db,
                       {.type = "removed",
                        .state = job.state,
                        .reason = job.reason,
                        .message = removal.message,
                        .step = job.progress.step},
                       number);
  });
}

absl::Status JobStore::EndRemoveJob(const std::string& id) {
  return Change(id, [](Database* db, int64_t number) -> absl::Status {
    ASSIGN_OR_RETURN(Statement update,
                     db->Prepare("UPDATE jobs SET output_name = ?, output_path "
                                 "= '' WHERE number = ? AND output_name = ?"));
    return update.Bind(std::string(kRemoved))
        .Bind(number)
        .Bind(std::string(kRemoving))
        .Run();
  });
}

// Rows that have stayed long enough, or are too many: the first ones go.
absl::Status JobStore::ForgetRemoved(Database* db) {
  const int64_t oldest = ToMicros(options_.now() - options_.request_lifetime);
  std::vector<std::pair<int64_t, int64_t>> rows;  // numbers and times
  {
    ASSIGN_OR_RETURN(Statement select,
                     db->Prepare("SELECT number, end_us FROM jobs WHERE "
                                 "output_name = ? AND output_name <> '' "
                                 "ORDER BY end_us, number"));
    select.Bind(std::string(kRemoved));
    while (true) {
      ASSIGN_OR_RETURN(const bool row, select.Step());
      if (!row) break;
      rows.emplace_back(select.Int(0), select.Int(1));
    }
  }
  size_t left = rows.size();
  for (const auto& [number, time_us] : rows) {
    if (time_us >= oldest && left < options_.max_removed_jobs) continue;
    --left;
    RETURN_IF_ERROR(DropRowsOf(db, number));
    RETURN_IF_ERROR(RunFor(db, "DELETE FROM requests WHERE job = ?", number));
    RETURN_IF_ERROR(RunFor(db, "DELETE FROM jobs WHERE number = ?", number));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<RemovedJob>> JobStore::RemovedJobs() const {
  MutexLock lock(read_mutex_);
  ASSIGN_OR_RETURN(
      Statement select,
      reader_->Prepare(absl::StrCat("SELECT ", JobColumns(JobTexts::kLeftOut),
                                    " FROM jobs WHERE output_name = ? AND "
                                    "output_name <> '' ORDER BY number")));
  select.Bind(std::string(kRemoving));
  std::vector<RemovedJob> jobs;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return jobs;
    ASSIGN_OR_RETURN(JobRecord job, ReadJob(select));
    jobs.push_back(
        {.id = job.id, .uid = job.uid, .output_path = job.output_path});
  }
}

absl::Status JobStore::RemoveCheckpoints(const std::string& id,
                                         const GoingCheckpoints& going,
                                         const MayWrite& may_go) {
  return Change(id, [&](Database* db, int64_t number) -> absl::Status {
    ASSIGN_OR_RETURN(const JobRecord job, SelectEndedJob(db, number));
    RETURN_IF_ERROR(may_go(db));
    for (const CheckpointRecord& checkpoint : going.checkpoints) {
      // One that lies there without a row gets it now.
      ASSIGN_OR_RETURN(
          Statement insert,
          db->Prepare(
              "INSERT OR REPLACE INTO checkpoints VALUES (?, ?, '', ?, ?)"));
      insert.Bind(number).Bind(checkpoint.step).Bind(checkpoint.size_bytes);
      RETURN_IF_ERROR(insert.Bind(ToMicros(checkpoint.create_time)).Run());
    }
    ASSIGN_OR_RETURN(
        Statement update,
        db->Prepare("UPDATE jobs SET last_checkpoint = ? WHERE number = ?"));
    RETURN_IF_ERROR(update.Bind(going.last_path).Bind(number).Run());
    return InsertEvent(db,
                       {.type = "note",
                        .state = job.state,
                        .reason = job.reason,
                        .message = going.message,
                        .step = job.progress.step},
                       number);
  });
}

absl::Status JobStore::EndRemoveCheckpoint(const std::string& id,
                                           int64_t step) {
  return Change(id, [step](Database* db, int64_t number) -> absl::Status {
    ASSIGN_OR_RETURN(Statement drop,
                     db->Prepare("DELETE FROM checkpoints WHERE job = ? AND "
                                 "step = ? AND path = ''"));
    return drop.Bind(number).Bind(step).Run();
  });
}

absl::StatusOr<std::vector<RemovedCheckpoint>> JobStore::RemovedCheckpoints()
    const {
  MutexLock lock(read_mutex_);
  ASSIGN_OR_RETURN(
      Statement select,
      reader_->Prepare("SELECT job, step, (SELECT uid FROM jobs WHERE number = "
                       "job) FROM checkpoints WHERE path = '' ORDER BY job"));
  std::vector<RemovedCheckpoint> found;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return found;
    found.push_back({.job_id = NameOfJob(select.Int(0)),
                     .job_uid = select.Text(2),
                     .step = select.Int(1)});
  }
}

}  // namespace roundhouse
