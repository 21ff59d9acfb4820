#include "server/store/store_rows.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "server/spec/spec_error.h"
#include "server/store/store_check.h"

namespace roundhouse {
namespace {

std::optional<absl::Time> OptionalTime(int64_t micros) {
  if (micros == 0) return std::nullopt;
  return absl::FromUnixMicros(micros);
}

absl::StatusOr<JobState> ReadState(int64_t number) {
  const auto state = JobStateFromNumber(static_cast<int>(number));
  if (state.has_value()) return *state;
  return absl::DataLossError(
      absl::StrCat("job store: there is no state ", number));
}

absl::StatusOr<Priority> ReadPriority(int64_t number) {
  const auto priority = PriorityFromNumber(number);
  if (priority.has_value()) return *priority;
  return absl::DataLossError(
      absl::StrCat("job store: there is no priority ", number));
}

absl::StatusOr<JobReason> ReadReason(int64_t number) {
  const auto reason = JobReasonFromNumber(static_cast<int>(number));
  if (reason.has_value()) return *reason;
  return absl::DataLossError(
      absl::StrCat("job store: there is no reason ", number));
}

}  // namespace

std::string JobColumns(JobTexts texts) {
  const bool read = texts == JobTexts::kRead;
  return absl::StrCat(
      "number, uid, state, reason, message, create_us, start_us, end_us, ",
      read ? "text, resolved, " : "'', '', ",
      "output_name, output_path, last_checkpoint, attempts, revision, dataset, "
      "progress, owner, project, principal, ",
      RowIsWhole("jobs"), read ? absl::StrCat(" AND ", kTextsAreWhole) : "",
      read ? ", files" : ", ''", ", priority");
}

absl::StatusOr<JobRecord> ReadJob(const Statement& row) {
  JobRecord job;
  job.id = NameOfJob(row.Int(0));
  if (row.Int(20) == 0) return DamagedRow("jobs", job.id);
  job.uid = row.Text(1);
  ASSIGN_OR_RETURN(job.state, ReadState(row.Int(2)));
  ASSIGN_OR_RETURN(job.reason, ReadReason(row.Int(3)));
  job.message = row.Text(4);
  job.create_time = absl::FromUnixMicros(row.Int(5));
  job.start_time = OptionalTime(row.Int(6));
  job.end_time = OptionalTime(row.Int(7));
  job.text = row.Text(8);
  job.resolved = row.Text(9);
  job.output_name = row.Text(10);
  job.output_path = row.Text(11);
  job.last_checkpoint_path = row.Text(12);
  job.attempts = static_cast<int>(row.Int(13));
  job.revision = row.Int(14);
  ASSIGN_OR_RETURN(job.dataset, DatasetFromJson(row.Text(15)));
  ASSIGN_OR_RETURN(job.progress, ProgressFromJson(row.Text(16)));
  job.owner = row.Text(17);
  job.project = row.Text(18);
  job.principal = row.Text(19);
  job.files = row.Text(21);
  ASSIGN_OR_RETURN(job.priority, ReadPriority(row.Int(22)));
  return job;
}

std::string EventColumns() {
  return absl::StrCat(
      "revision, job, time_us, type, state, reason, message, step, ",
      RowIsWhole("events"));
}

absl::StatusOr<JobEvent> ReadEvent(const Statement& row) {
  JobEvent event;
  event.revision = row.Int(0);
  if (row.Int(8) == 0) {
    return DamagedRow("events", absl::StrCat("revision ", event.revision));
  }
  event.job_id = NameOfJob(row.Int(1));
  event.time = absl::FromUnixMicros(row.Int(2));
  event.type = row.Text(3);
  ASSIGN_OR_RETURN(event.state, ReadState(row.Int(4)));
  ASSIGN_OR_RETURN(event.reason, ReadReason(row.Int(5)));
  event.message = row.Text(6);
  event.step = row.Int(7);
  return event;
}

absl::StatusOr<JobRecord> SelectJob(Database* db, int64_t number,
                                    JobTexts texts) {
  ASSIGN_OR_RETURN(JobRecord job, SelectAnyJob(db, number, texts));
  if (!absl::StartsWith(job.output_name, "/")) return job;
  return absl::NotFoundError(absl::StrCat(job.id, " was deleted"));
}

absl::StatusOr<JobRecord> SelectAnyJob(Database* db, int64_t number,
                                       JobTexts texts) {
  ASSIGN_OR_RETURN(Statement select,
                   db->Prepare(absl::StrCat("SELECT ", JobColumns(texts),
                                            " FROM jobs WHERE number = ?")));
  select.Bind(number);
  ASSIGN_OR_RETURN(const bool found, select.Step());
  if (!found) {
    return absl::NotFoundError(
        absl::StrCat("there is no job ", NameOfJob(number)));
  }
  return ReadJob(select);
}

std::string LiveStates() {
  std::vector<int> states;
  for (const JobState state : AllJobStates()) {
    if (!IsFinal(state)) states.push_back(static_cast<int>(state));
  }
  return absl::StrJoin(states, ", ");
}

absl::Status UsedByJobs(const std::string& what,
                        std::vector<std::string> users) {
  const bool more = users.size() >= kMaxAskedUsers;
  if (more) users.resize(kMaxAskedUsers - 1);
  return absl::FailedPreconditionError(
      absl::StrCat(what, " is used by jobs that have not ended: ",
                   absl::StrJoin(users, ", "), more ? " ..." : ""));
}

absl::StatusOr<int64_t> ReadMeta(Database* db, const std::string& key) {
  ASSIGN_OR_RETURN(Statement select, db->Prepare(absl::StrCat(
                                         "SELECT value, ", RowIsWhole("meta"),
                                         " FROM meta WHERE key = ?")));
  select.Bind(key);
  ASSIGN_OR_RETURN(const bool found, select.Step());
  if (!found || select.Int(1) == 0) return DamagedRow("meta", key);
  return select.Int(0);
}

absl::StatusOr<int64_t> JobOfOutputName(Database* db, const std::string& name) {
  // The second term is that of the index.
  ASSIGN_OR_RETURN(
      Statement select,
      db->Prepare(absl::StrCat("SELECT number, ", RowIsWhole("jobs"),
                               " FROM jobs WHERE output_name = ? AND "
                               "output_name <> '' ORDER BY number DESC "
                               "LIMIT 1")));
  select.Bind(name);
  ASSIGN_OR_RETURN(const bool found, select.Step());
  if (!found) return 0;
  if (select.Int(1) == 0) return DamagedRow("jobs", NameOfJob(select.Int(0)));
  return select.Int(0);
}

absl::Status OutputNameIsFree(Database* db, const std::string& name) {
  ASSIGN_OR_RETURN(const int64_t number, JobOfOutputName(db, name));
  if (number == 0) return absl::OkStatus();
  return FieldError(
      FieldReason::kInvalidValue, "output_name",
      absl::StrCat("\"", name,
                   "\" is taken by another job; give another output_name"));
}

}  // namespace roundhouse
