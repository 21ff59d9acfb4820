// The reading half of store.h.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "server/spec/spec_error.h"
#include "server/store/store.h"
#include "server/store/store_check.h"
#include "server/store/store_rows.h"

namespace roundhouse {
namespace {

absl::Status NoSuchJob(const std::string& id) {
  return absl::NotFoundError(absl::StrCat("there is no job ", id));
}

std::string StateFilter(const std::vector<JobState>& states) {
  if (states.empty()) return "1";
  return absl::StrCat("state IN (",
                      absl::StrJoin(states, ",",
                                    [](std::string* out, JobState s) {
                                      absl::StrAppend(out, static_cast<int>(s));
                                    }),
                      ")");
}

constexpr char kRevisionSql[] =
    "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), "
    "0)";

// The events after `revision`, with whether the first one follows it directly.
absl::StatusOr<std::vector<JobEvent>> SelectEvents(Database* db,
                                                   int64_t revision,
                                                   int64_t number, int limit) {
  ASSIGN_OR_RETURN(
      Statement select,
      db->Prepare(absl::StrCat(
          "SELECT ", EventColumns(), " FROM events WHERE revision > ?",
          number > 0 ? " AND job = ?" : "", " ORDER BY revision LIMIT ?")));
  select.Bind(revision);
  if (number > 0) select.Bind(number);
  select.Bind(int64_t{limit});
  std::vector<JobEvent> events;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return events;
    ASSIGN_OR_RETURN(JobEvent event, ReadEvent(select));
    events.push_back(std::move(event));
  }
}

absl::Status CheckFloor(Database* db, int64_t revision) {
  ASSIGN_OR_RETURN(const int64_t floor, ReadMeta(db, "compaction_floor"));
  if (revision >= floor) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("changes up to revision ", floor,
                   " are no longer kept (asked for those "
                   "after ",
                   revision,
                   "); list the jobs and watch from the list's "
                   "revision"));
}

}  // namespace

absl::StatusOr<JobRecord> JobStore::Get(const std::string& id) const {
  const auto number = JobNumber(id);
  if (!number.has_value()) return NoSuchJob(id);
  JobRecord job;
  {
    MutexLock lock(read_mutex_);
    ASSIGN_OR_RETURN(job, SelectJob(reader_.get(), *number, JobTexts::kRead));
  }
  Overlay(*number, &job);
  return job;
}

absl::StatusOr<std::optional<std::string>> JobStore::FindOutputName(
    const std::string& name) const {
  MutexLock lock(read_mutex_);
  ASSIGN_OR_RETURN(const int64_t number, JobOfOutputName(reader_.get(), name));
  if (number == 0) return std::optional<std::string>();
  return std::optional<std::string>(NameOfJob(number));
}

absl::Status JobStore::CheckOutputName(const std::string& name) const {
  MutexLock lock(read_mutex_);
  return OutputNameIsFree(reader_.get(), name);
}

absl::StatusOr<std::optional<std::string>> JobStore::FindUid(
    const std::string& uid) const {
  MutexLock lock(read_mutex_);
  ASSIGN_OR_RETURN(Statement select,
                   reader_->Prepare("SELECT number FROM jobs WHERE uid = ?"));
  ASSIGN_OR_RETURN(const bool row, select.Bind(uid).Step());
  if (!row) return std::nullopt;
  return NameOfJob(select.Int(0));
}

absl::StatusOr<JobPage> JobStore::List(const std::vector<JobState>& states,
                                       std::optional<int64_t> before,
                                       int limit) const {
  MutexLock lock(read_mutex_);
  JobPage page;
  // Read before the rows: what changes in between is watched twice, not missed.
  ASSIGN_OR_RETURN(page.revision, reader_->QueryInt(kRevisionSql));
  ASSIGN_OR_RETURN(Statement select,
                   reader_->Prepare(absl::StrCat(
                       "SELECT ", JobColumns(JobTexts::kLeftOut),
                       " FROM jobs WHERE number < ? AND ", kJobIsThere, " AND ",
                       StateFilter(states), " ORDER BY number DESC LIMIT ?")));
  select.Bind(before.value_or(INT64_MAX)).Bind(int64_t{limit} + 1);
  while (true) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return page;
    if (static_cast<int>(page.jobs.size()) == limit) {
      page.next_before = JobNumber(page.jobs.back().id);
      return page;
    }
    ASSIGN_OR_RETURN(JobRecord job, ReadJob(select));
    Overlay(select.Int(0), &job);
    page.jobs.push_back(std::move(job));
  }
}

absl::StatusOr<EventPage> JobStore::ListEvents(const std::string& id,
                                               int64_t after, int limit) const {
  const auto number = JobNumber(id);
  if (!number.has_value()) return NoSuchJob(id);
  MutexLock lock(read_mutex_);
  RETURN_IF_ERROR(
      SelectJob(reader_.get(), *number, JobTexts::kLeftOut).status());
  EventPage page;
  ASSIGN_OR_RETURN(page.events,
                   SelectEvents(reader_.get(), after, *number, limit + 1));
  page.more = static_cast<int>(page.events.size()) > limit;
  if (page.more) page.events.pop_back();
  return page;
}

absl::StatusOr<std::vector<CheckpointRecord>> JobStore::ListCheckpoints(
    const std::string& id) const {
  const auto number = JobNumber(id);
  if (!number.has_value()) return NoSuchJob(id);
  MutexLock lock(read_mutex_);
  ASSIGN_OR_RETURN(Statement select,
                   reader_->Prepare(absl::StrCat(
                       "SELECT step, path, size_bytes, create_us, ",
                       RowIsWhole("checkpoints"),
                       " FROM checkpoints WHERE job = ? AND path <> '' "
                       "ORDER BY step")));
  select.Bind(*number);
  std::vector<CheckpointRecord> out;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return out;
    if (select.Int(4) == 0) {
      return DamagedRow("checkpoints",
                        absl::StrCat(id, " step ", select.Int(0)));
    }
    out.push_back({.step = select.Int(0),
                   .path = select.Text(1),
                   .size_bytes = select.Int(2),
                   .create_time = absl::FromUnixMicros(select.Int(3))});
  }
}

absl::StatusOr<std::map<JobState, int64_t>> JobStore::CountByState() const {
  MutexLock lock(read_mutex_);
  ASSIGN_OR_RETURN(
      Statement select,
      reader_->Prepare(absl::StrCat(
          "SELECT state, sum(n) FROM ("
          "SELECT state, count(*) AS n FROM jobs GROUP BY state UNION ALL "
          "SELECT state, -count(*) FROM jobs WHERE ",
          kJobWasRemoved,
          " GROUP BY state) GROUP BY state HAVING sum(n) > 0")));
  std::map<JobState, int64_t> out;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return out;
    const auto state = JobStateFromNumber(static_cast<int>(select.Int(0)));
    if (state.has_value()) out[*state] = select.Int(1);
  }
}

absl::StatusOr<std::vector<JobChange>> JobStore::ChangesAfter(
    int64_t revision, const std::string& id, int limit) const {
  MutexLock lock(read_mutex_);
  const int64_t number = id.empty() ? 0 : JobNumber(id).value_or(-1);
  if (number < 0) return NoSuchJob(id);
  ASSIGN_OR_RETURN(const auto events,
                   SelectEvents(reader_.get(), revision, number, limit));
  // After the events: what was compacted away in between shows in the floor.
  RETURN_IF_ERROR(CheckFloor(reader_.get(), revision));
  std::vector<JobChange> changes;
  for (const JobEvent& event : events) {
    auto found = SelectAnyJob(reader_.get(), *JobNumber(event.job_id),
                              JobTexts::kLeftOut);
    // A deleted one whose row went between the two looks.
    if (absl::IsNotFound(found.status())) continue;
    ASSIGN_OR_RETURN(JobRecord job, std::move(found));
    Overlay(*JobNumber(event.job_id), &job);
    // The mark of one that was deleted is nobody's affair.
    if (event.type == "removed") job.output_name.clear();
    job.state = event.state;
    job.reason = event.reason;
    if (event.type == "state") job.message = event.message;
    job.progress.step = event.step;
    job.revision = event.revision;
    changes.push_back({event, std::move(job)});
  }
  return changes;
}

absl::StatusOr<int64_t> JobStore::Revision() const {
  MutexLock lock(read_mutex_);
  return reader_->QueryInt(kRevisionSql);
}

}  // namespace roundhouse
