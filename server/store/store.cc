#include "server/store/store.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/files/durable_file.h"
#include "base/log.h"
#include "base/random_bytes.h"
#include "base/status.h"
#include "server/spec/spec_error.h"
#include "server/store/store_check.h"
#include "server/store/store_open.h"
#include "server/store/store_rows.h"
#include "server/store/store_tail.h"

namespace roundhouse {
namespace {

// Compaction runs once in so many events.
constexpr int64_t kCompactEvery = 256;

absl::Status NoSuchJob(const std::string& id) {
  return absl::NotFoundError(absl::StrCat("there is no job ", id));
}

absl::StatusOr<int64_t> NumberOf(const std::string& id) {
  const auto number = JobNumber(id);
  if (!number.has_value()) return NoSuchJob(id);
  return *number;
}

// The job that `request_id` made; 0 when none did.
absl::StatusOr<int64_t> RequestedJob(Database* db, const std::string& principal,
                                     const std::string& request_id,
                                     const std::string& text,
                                     int64_t not_before_us) {
  ASSIGN_OR_RETURN(
      Statement select,
      db->Prepare(absl::StrCat(
          "SELECT job, payload_sha256, ", RowIsWhole("requests"), ", (SELECT ",
          kJobIsThere,
          " FROM jobs WHERE number = job)"
          " FROM requests WHERE principal IN (?1, 'local') AND request_id = ?2 "
          "AND create_us >= ?3 ORDER BY principal <> ?1 LIMIT 1")));
  select.Bind(principal).Bind(request_id).Bind(not_before_us);
  ASSIGN_OR_RETURN(const bool found, select.Step());
  if (!found) return 0;
  if (select.Int(2) == 0) return DamagedRow("requests", request_id);
  const bool same = select.Text(1) == Sha256Of(text);
  if (same && select.Int(3) != 0) return select.Int(0);
  if (same) {
    return RequestError(
        absl::StatusCode::kNotFound, FieldReason::kNotFound, "request_id",
        absl::StrCat(NameOfJob(select.Int(0)), ", which request_id \"",
                     request_id, "\" made, was deleted; take a new one"));
  }
  return RequestError(FieldReason::kRequestIdReused, "request_id",
                      absl::StrCat("request_id \"", request_id,
                                   "\" was used for another job file; take a "
                                   "new one"));
}

absl::Status RememberRequest(Database* db, const NewJob& job, int64_t number,
                             int64_t now_us) {
  ASSIGN_OR_RETURN(
      Statement insert,
      db->Prepare("INSERT OR REPLACE INTO requests VALUES (?, ?, ?, ?, ?)"));
  return insert.Bind(job.principal)
      .Bind(job.request_id)
      .Bind(Sha256Of(job.text))
      .Bind(number)
      .Bind(now_us)
      .Run();
}

// In the transaction that makes the job: nobody removes it in between.
absl::Status ProjectIsThere(Database* db, const std::string& project) {
  ASSIGN_OR_RETURN(Statement select,
                   db->Prepare("SELECT 1 FROM projects WHERE name = ?"));
  ASSIGN_OR_RETURN(const bool found, select.Bind(project).Step());
  if (found) return absl::OkStatus();
  return FieldError(
      absl::StatusCode::kNotFound, FieldReason::kNotFound, "project",
      absl::StrCat("there is no project \"",
                   absl::CHexEscape(project.substr(0, 80)), "\""));
}

absl::Status DropOldRequests(Database* db, int64_t before_us) {
  ASSIGN_OR_RETURN(Statement drop,
                   db->Prepare("DELETE FROM requests WHERE create_us < ?"));
  return drop.Bind(before_us).Run();
}

}  // namespace

JobStore::JobStore(StoreOptions options) : options_(std::move(options)) {}

JobStore::~JobStore() = default;

absl::StatusOr<std::unique_ptr<JobStore>> JobStore::Open(StoreOptions options) {
  std::unique_ptr<JobStore> store(new JobStore(std::move(options)));
  const std::string& path = store->options_.path;
  ASSIGN_OR_RETURN(OpenedStore opened, OpenStore(path, store->options_.now()));
  {
    MutexLock lock(store->read_mutex_);
    ASSIGN_OR_RETURN(store->reader_,
                     Database::Open(path, Database::Mode::kRead));
  }
  store->findings_ = std::move(opened.findings);
  store->mark_ = std::move(opened.mark);
  store->StartWriter(std::move(opened.db));
  return store;
}

void JobStore::StartWriter(std::unique_ptr<Database> db) {
  WriterHooks hooks;
  hooks.before_commit = [this](Database* writer) -> absl::Status {
    RETURN_IF_ERROR(options_.fault());
    ASSIGN_OR_RETURN(tail_, AdvanceTail(writer));
    return absl::OkStatus();
  };
  hooks.after_commit = [this] { WriteMark(); };
  hooks.committed = [this](absl::Duration took) {
    options_.on_commit(took);
    Notify();
  };
  hooks.finished = [this](Database* writer) {
    const absl::Status kept = BackUp(writer, options_.path);
    if (!kept.ok()) RH_LOG(kWarning) << "job store: no backup: " << kept;
  };
  writer_ = std::make_unique<StoreWriter>(std::move(db), std::move(hooks));
}

// The commit is on disk and stands.  A mark that can't be written only hides a
// loss; the next commit's makes up for it.
void JobStore::WriteMark() {
  const absl::Status written = mark_->Write(tail_);
  if (!written.ok() && !mark_fails_) RH_LOG(kError) << written;
  mark_fails_ = !written.ok();
}

void JobStore::SetListener(std::function<void()> listener) {
  MutexLock lock(listener_mutex_);
  listener_ = std::move(listener);
}

// The lock is held over the call, so that SetListener can promise its end.
void JobStore::Notify() {
  MutexLock lock(listener_mutex_);
  if (listener_ != nullptr) listener_();
}

// Progress.

void JobStore::UpdateProgress(const std::string& id,
                              const JobProgress& progress) {
  const auto number = JobNumber(id);
  if (!number.has_value()) return;
  const auto job = Get(id);
  if (!job.ok() || IsFinal(job->state)) return;
  {
    MutexLock lock(progress_mutex_);
    Live& live = live_[*number];
    live.progress = progress;
    ++live.version;
  }
  Notify();
}

std::map<std::string, uint64_t> JobStore::LiveJobs() const {
  MutexLock lock(progress_mutex_);
  std::map<std::string, uint64_t> out;
  for (const auto& [number, live] : live_) {
    out.emplace(NameOfJob(number), live.version);
  }
  return out;
}

std::optional<JobProgress> JobStore::LiveProgress(int64_t number) const {
  MutexLock lock(progress_mutex_);
  const auto found = live_.find(number);
  if (found == live_.end()) return std::nullopt;
  return found->second.progress;
}

void JobStore::DropProgress(int64_t number) {
  MutexLock lock(progress_mutex_);
  live_.erase(number);
}

// The end of a job is on disk whole; what is in memory then is about to go.
void JobStore::Overlay(int64_t number, JobRecord* job) const {
  if (IsFinal(job->state)) return;
  const auto progress = LiveProgress(number);
  if (!progress.has_value()) return;
  const bool memory_kept = job->progress.memory_kept;  // of the row
  job->progress = *progress;
  job->progress.memory_kept = memory_kept;
}

absl::Status JobStore::FlushProgress(Database* db, int64_t number) {
  const auto progress = LiveProgress(number);
  if (!progress.has_value()) return absl::OkStatus();
  return WriteProgress(db, number, *progress);
}

absl::Status JobStore::WriteProgress(Database* db, int64_t number,
                                     const JobProgress& progress) {
  ASSIGN_OR_RETURN(
      Statement update,
      db->Prepare("UPDATE jobs SET progress = ? WHERE number = ?"));
  return update.Bind(ProgressToJson(progress)).Bind(number).Run();
}

// Writes.

absl::StatusOr<JobRecord> JobStore::Create(const NewJob& job, bool* created) {
  int64_t number = 0;
  bool fresh = true;
  const absl::Status written = writer_->Run([&](Database* db) -> absl::Status {
    if (!job.request_id.empty()) {
      const int64_t oldest =
          ToMicros(options_.now() - options_.request_lifetime);
      ASSIGN_OR_RETURN(number, RequestedJob(db, job.principal, job.request_id,
                                            job.text, oldest));
      if (number != 0) {
        fresh = false;
        return absl::OkStatus();
      }
      RETURN_IF_ERROR(DropOldRequests(db, oldest));
    }
    return InsertJob(db, job, &number);
  });
  RETURN_IF_ERROR(written);
  if (created != nullptr) *created = fresh;
  return Get(NameOfJob(number));
}

absl::Status JobStore::InsertJob(Database* db, const NewJob& job,
                                 int64_t* number) {
  ASSIGN_OR_RETURN(
      const int64_t jobs,
      db->QueryInt(absl::StrCat("SELECT (SELECT count(*) FROM jobs) - "
                                "(SELECT count(*) FROM jobs WHERE ",
                                kJobWasRemoved, ")")));
  if (jobs >= options_.max_jobs) {
    return RequestError(
        absl::StatusCode::kResourceExhausted, FieldReason::kQuota, "jobs",
        absl::StrCat("the server keeps ", options_.max_jobs, " jobs at most"));
  }
  RETURN_IF_ERROR(OutputNameIsFree(db, job.output_name));
  RETURN_IF_ERROR(ProjectIsThere(db, job.project));
  RETURN_IF_ERROR(job.may_be_made(db));
  const int64_t now_us = ToMicros(options_.now());
  ASSIGN_OR_RETURN(
      Statement insert,
      db->Prepare("INSERT INTO jobs (uid, state, reason, message, create_us, "
                  "start_us, end_us, text, resolved, output_name, output_path, "
                  "last_checkpoint, attempts, revision, dataset, progress, "
                  "owner, project, principal, files, priority) "
                  "VALUES (?, ?, 0, '', ?, 0, 0, ?, ?, ?, '', '', 0, 0, '', "
                  "'{}', ?, ?, ?, ?, ?)"));
  insert.Bind(NewRandomId()).Bind(static_cast<int64_t>(JobState::kValidating));
  insert.Bind(now_us).Bind(job.text).Bind(job.resolved).Bind(job.output_name);
  insert.Bind(job.owner.empty() ? job.principal : job.owner);
  insert.Bind(job.project).Bind(job.principal).Bind(job.files);
  insert.Bind(static_cast<int64_t>(job.priority));
  RETURN_IF_ERROR(insert.Run());
  *number = db->LastInsertId();
  if (!job.request_id.empty()) {
    RETURN_IF_ERROR(RememberRequest(db, job, *number, now_us));
  }
  return InsertEvent(db, {.type = "state", .state = JobState::kValidating},
                     *number);
}

absl::Status JobStore::InsertEvent(Database* db, JobEvent event,
                                   int64_t number) {
  ASSIGN_OR_RETURN(
      Statement insert,
      db->Prepare("INSERT INTO events (job, time_us, type, state, reason, "
                  "message, step) VALUES (?, ?, ?, ?, ?, ?, ?)"));
  insert.Bind(number).Bind(ToMicros(options_.now())).Bind(event.type);
  insert.Bind(static_cast<int64_t>(event.state));
  insert.Bind(static_cast<int64_t>(event.reason));
  RETURN_IF_ERROR(insert.Bind(event.message).Bind(event.step).Run());
  const int64_t revision = db->LastInsertId();
  ASSIGN_OR_RETURN(
      Statement update,
      db->Prepare("UPDATE jobs SET revision = ? WHERE number = ?"));
  RETURN_IF_ERROR(update.Bind(revision).Bind(number).Run());
  return revision % kCompactEvery == 0 ? Compact(db, revision)
                                       : absl::OkStatus();
}

absl::Status JobStore::Compact(Database* db, int64_t revision) {
  const int64_t floor = revision - options_.max_events;
  if (floor <= 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(Statement drop,
                   db->Prepare("DELETE FROM events WHERE revision <= ?"));
  RETURN_IF_ERROR(drop.Bind(floor).Run());
  ASSIGN_OR_RETURN(Statement update,
                   db->Prepare("UPDATE meta SET value = max(value, ?) "
                               "WHERE key = 'compaction_floor'"));
  return update.Bind(floor).Run();
}

absl::StatusOr<std::optional<JobRecord>> JobStore::FindRequest(
    const std::string& principal, const std::string& request_id,
    const std::string& text) {
  if (request_id.empty()) return std::optional<JobRecord>();
  int64_t number = 0;
  {
    MutexLock lock(read_mutex_);
    const int64_t oldest = ToMicros(options_.now() - options_.request_lifetime);
    ASSIGN_OR_RETURN(number, RequestedJob(reader_.get(), principal, request_id,
                                          text, oldest));
  }
  if (number == 0) return std::optional<JobRecord>();
  ASSIGN_OR_RETURN(JobRecord job, Get(NameOfJob(number)));
  return std::optional<JobRecord>(std::move(job));
}

absl::Status JobStore::WriteWith(const StoreWriter::Write& write) {
  return writer_->Run(write);
}

absl::Status JobStore::ReadWith(
    const std::function<absl::Status(Database*)>& read) const {
  MutexLock lock(read_mutex_);
  return read(reader_.get());
}

absl::Status JobStore::Change(
    const std::string& id,
    const std::function<absl::Status(Database*, int64_t)>& write) {
  ASSIGN_OR_RETURN(const int64_t number, NumberOf(id));
  return writer_->Run([&](Database* db) { return write(db, number); });
}

absl::Status JobStore::SkipJobNumbers(int64_t number) {
  return writer_->Run([number](Database* db) {
    return SkipTo(db, {.commit = 0, .job = number, .revision = 0});
  });
}

}  // namespace roundhouse
