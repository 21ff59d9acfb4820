// The durable record of every job: SQLite in WAL mode, synchronous=FULL, with a
// checksum in every row and a mark beside it (store_mark.h, store_open.h).
//
// A write returns when it is on disk; a transition is committed before anyone
// can see it.  Every change gets the next global revision and an event; events
// are kept up to a limit, above a compaction floor.  Progress numbers live in
// memory and go to disk with the job's next transition or checkpoint.
//
// A row that differs from its checksum is never answered and never written
// over: whatever reads or changes it is kDataLoss.  (CountByState only counts.)
//
//   auto store = JobStore::Open({.path = state_dir + "/jobs.db"});
//   auto job = store->Create({.text = text, .resolved = json});
//   store->Transition(job->id, JobState::kQueued, {});
//
// Thread-safe.  Writes block for about one fsync; reads don't wait for writes.
#ifndef ROUNDHOUSE_SERVER_STORE_STORE_H_
#define ROUNDHOUSE_SERVER_STORE_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "server/store/store_db.h"
#include "server/store/store_mark.h"
#include "server/store/store_records.h"
#include "server/store/store_requests.h"
#include "server/store/store_writer.h"

namespace roundhouse {

struct StoreOptions {
  std::string path;
  std::function<absl::Time()> now = [] { return WallTime(); };
  // After each commit, with how long it took, on the thread that made it; must
  // return at once.
  std::function<void(absl::Duration)> on_commit = [](absl::Duration) {};
  // A request_id is remembered this long.
  absl::Duration request_lifetime = absl::Hours(7 * 24);
  // Events kept, over all jobs; older ones are compacted.
  int64_t max_events = 200000;
  // Jobs that may exist; Create beyond it is kResourceExhausted.
  int64_t max_jobs = 100000;
  // Rows of deleted jobs that stay, beside those whose files may be there.
  size_t max_removed_jobs = 1000;
  // Test only: before each commit; an error is the answer to its writes.
  std::function<absl::Status()> fault = [] { return absl::OkStatus(); };
};

struct JobPage {
  // Newest first, without text, resolved and files.
  std::vector<JobRecord> jobs;
  std::optional<int64_t> next_before;  // Give it back as `before`.
  int64_t revision = 0;                // The store's when the page was read.
};

struct EventPage {
  std::vector<JobEvent> events;  // Oldest first.
  bool more = false;             // Go on after the last one's revision.
};

// A deleted job whose files may still be there.
struct RemovedJob {
  std::string id;
  std::string uid;
  std::string output_path;  // as JobRemoval's
};

// A deleted checkpoint whose files may still be there.
struct RemovedCheckpoint {
  std::string job_id;
  std::string job_uid;
  int64_t step = 0;
};

// One committed change as it was then.
struct JobChange {
  JobEvent event;
  // Without text, resolved and files; state and step of the event.
  JobRecord job;
};

class JobStore {
 public:
  // Checks pages and every row, migrates forward, makes a backup.  kDataLoss
  // names what is damaged and what to do, kFailedPrecondition (written by a
  // newer version), kResourceExhausted.
  static absl::StatusOr<std::unique_ptr<JobStore>> Open(StoreOptions options);
  ~JobStore();
  JobStore(const JobStore&) = delete;
  JobStore& operator=(const JobStore&) = delete;

  // What Open found that somebody should look at, a sentence each: acknowledged
  // writes that are lost above all.
  const std::vector<std::string>& findings() const { return findings_; }

  // Called after each commit and each progress update, on the thread that made
  // it; must return at once and not call the store.  At most one.  When
  // SetListener returns, the one before is not running and won't be called.
  void SetListener(std::function<void()> listener);

  // A new job in VALIDATING.  With a known request_id: the job made first when
  // the text is the same, else kInvalidArgument.  `created` may be null.
  // kInvalidArgument for an output_name that another job has; kNotFound for a
  // project that is not there.
  absl::StatusOr<JobRecord> Create(const NewJob& job, bool* created = nullptr);
  // The job that this request_id made, for a retry before anything is checked
  // again.  kInvalidArgument when the text differs.  A request of "local", as
  // all were before principals were known, is everybody's.
  absl::StatusOr<std::optional<JobRecord>> FindRequest(
      const std::string& principal, const std::string& request_id,
      const std::string& text);

  // kNotFound; kFailedPrecondition when job_state.h has no such arrow.
  absl::StatusOr<JobRecord> Transition(const std::string& id, JobState to,
                                       const TransitionInfo& info);
  absl::Status SetDetails(const std::string& id, const JobDetails& details);
  // kNotFound; kFailedPrecondition: it has ended; kAborted: it has another
  // revision.  Nothing is written where it has this priority.
  absl::StatusOr<JobRecord> SetPriority(const std::string& id,
                                        const PriorityChange& change);
  absl::Status AddEvent(const std::string& id, const std::string& type,
                        const std::string& message);
  // The same step again replaces the row.
  absl::Status AddCheckpoint(const std::string& id,
                             const CheckpointRecord& checkpoint);
  // Rows of others that are as old go, for they are not there any more.
  // REQUIRES: there are some.
  absl::Status KeepCheckpoints(const std::string& id,
                               const std::vector<int64_t>& steps);
  // Deleting goes in two steps: what is asked for disappears for everybody, and
  // once its files are gone End* says so.  A daemon that starts between the two
  // finds it in Removed*.  `may_go` is asked in the transaction, on the
  // writer's thread; its error is the answer.
  //
  // kNotFound; kFailedPrecondition: the job has not ended.  Its row stays,
  // without texts, for its request_id and for watchers, for request_lifetime
  // and with max_removed_jobs others.
  absl::Status RemoveJob(const std::string& id, const JobRemoval& removal,
                         const MayWrite& may_go);
  absl::Status EndRemoveJob(const std::string& id);
  absl::StatusOr<std::vector<RemovedJob>> RemovedJobs() const;
  absl::Status RemoveCheckpoints(const std::string& id,
                                 const GoingCheckpoints& going,
                                 const MayWrite& may_go);
  absl::Status EndRemoveCheckpoint(const std::string& id, int64_t step);
  absl::StatusOr<std::vector<RemovedCheckpoint>> RemovedCheckpoints() const;
  // Never gives job numbers up to `number`; for those that a lost store gave.
  absl::Status SkipJobNumbers(int64_t number);

  // In memory.  Ignored for a job that has ended.
  void UpdateProgress(const std::string& id, const JobProgress& progress);
  // Jobs with progress in memory, and its version, which rises with each
  // UpdateProgress of the job.
  std::map<std::string, uint64_t> LiveJobs() const;

  // kNotFound.
  absl::StatusOr<JobRecord> Get(const std::string& id) const;
  // The id of the newest job of that output_name; "" is nobody's.
  absl::StatusOr<std::optional<std::string>> FindOutputName(
      const std::string& name) const;
  // kInvalidArgument: a job has it, which may be a stranger's and is not named;
  // Create checks the same.
  absl::Status CheckOutputName(const std::string& name) const;
  // The id of the job that has this uid, also where it was deleted and its row
  // is still there.
  absl::StatusOr<std::optional<std::string>> FindUid(
      const std::string& uid) const;
  // Jobs in one of `states` (empty: all) with numbers below `before`.
  absl::StatusOr<JobPage> List(const std::vector<JobState>& states,
                               std::optional<int64_t> before, int limit) const;
  absl::StatusOr<EventPage> ListEvents(const std::string& id, int64_t after,
                                       int limit) const;
  // Oldest first.
  absl::StatusOr<std::vector<CheckpointRecord>> ListCheckpoints(
      const std::string& id) const;
  // Number of jobs by state; states without one are left out.
  absl::StatusOr<std::map<JobState, int64_t>> CountByState() const;

  // At most `limit` changes after `revision`, of job `id` or (empty) of all.
  // kOutOfRange when some of them were compacted away.
  absl::StatusOr<std::vector<JobChange>> ChangesAfter(int64_t revision,
                                                      const std::string& id,
                                                      int limit) const;
  absl::StatusOr<int64_t> Revision() const;

  // For the tables that others keep in this file (server/access): a write in a
  // transaction of the writer's, and a read that waits for no write.
  absl::Status WriteWith(const StoreWriter::Write& write);
  absl::Status ReadWith(
      const std::function<absl::Status(Database*)>& read) const;

 private:
  struct Live {
    JobProgress progress;
    uint64_t version = 0;
  };

  explicit JobStore(StoreOptions options);
  void StartWriter(std::unique_ptr<Database> db);
  void WriteMark();
  void Notify();
  std::optional<JobProgress> LiveProgress(int64_t number) const;
  void DropProgress(int64_t number);
  absl::Status InsertJob(Database* db, const NewJob& job, int64_t* number);
  absl::Status InsertEvent(Database* db, JobEvent event, int64_t number);
  absl::Status Compact(Database* db, int64_t revision);
  absl::Status ForgetRemoved(Database* db);
  absl::Status ApplyTransition(Database* db, int64_t number, JobState to,
                               const TransitionInfo& info);
  absl::Status ApplyAttempt(Database* db, const JobRecord& job, int64_t number,
                            JobState to, bool memory_kept);
  absl::Status FlushProgress(Database* db, int64_t number);
  absl::Status WriteProgress(Database* db, int64_t number,
                             const JobProgress& progress);
  void Overlay(int64_t number, JobRecord* job) const;
  // Runs `write` on an existing job in the writer's transaction.
  absl::Status Change(
      const std::string& id,
      const std::function<absl::Status(Database*, int64_t number)>& write);

  const StoreOptions options_;
  std::vector<std::string> findings_;
  std::unique_ptr<MarkFile> mark_;  // The writer's thread's, and the next two.
  StoreMark tail_;                  // What the mark must say.
  bool mark_fails_ = false;
  Mutex listener_mutex_;
  std::function<void()> listener_ ABSL_GUARDED_BY(listener_mutex_);
  mutable Mutex progress_mutex_;
  std::map<int64_t, Live> live_ ABSL_GUARDED_BY(progress_mutex_);
  mutable Mutex read_mutex_ ABSL_ACQUIRED_BEFORE(progress_mutex_);
  std::unique_ptr<Database> reader_ ABSL_GUARDED_BY(read_mutex_);
  std::unique_ptr<StoreWriter> writer_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_STORE_STORE_H_
