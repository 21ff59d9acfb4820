// Group commit: one thread that owns the write connection.  Writes that wait at
// the same time share one transaction and one fsync; each runs in a savepoint,
// so that a refused one leaves no trace and does not touch the others.
//
// Thread-safe.
#ifndef ROUNDHOUSE_SERVER_STORE_STORE_WRITER_H_
#define ROUNDHOUSE_SERVER_STORE_STORE_WRITER_H_

#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "server/store/store_db.h"

namespace roundhouse {

inline constexpr size_t kMaxWaitingWrites = 4096;
inline constexpr size_t kMaxWritesPerCommit = 128;
// The WAL goes into the file after so many commits, after so long without one,
// and at the end: little of the store ever lies in it alone.  Where nothing
// follows it is made empty, too.
inline constexpr int kMaxCommitsInWal = 32;
inline constexpr absl::Duration kMaxIdleInWal = absl::Seconds(1);

// What else belongs to a commit; each runs on the writer's thread, no lock
// held, and may be null.
struct WriterHooks {
  // The last write of each transaction; its error refuses the whole group.
  std::function<absl::Status(Database*)> before_commit;
  // When it is on disk, before anybody is answered.
  std::function<void()> after_commit;
  // After the answers, with how long all of that took.
  std::function<void(absl::Duration)> committed;
  // After the last commit, if there was one, with the WAL emptied.
  std::function<void(Database*)> finished;
};

class StoreWriter {
 public:
  using Write = std::function<absl::Status(Database*)>;

  StoreWriter(std::unique_ptr<Database> db, WriterHooks hooks);
  // Finishes what waits.
  ~StoreWriter();
  StoreWriter(const StoreWriter&) = delete;
  StoreWriter& operator=(const StoreWriter&) = delete;

  // Blocks until the write is on disk or refused.  The write's own error, the
  // commit's, or kUnavailable when too many wait.
  absl::Status Run(const Write& write);

 private:
  struct Waiting {
    const Write* write;
    absl::Status status;
    bool done = false;
  };

  void Loop();
  // The next writes; none: the WAL has been idle, or it is the last time.
  std::vector<Waiting*> AwaitGroup(bool* last);
  absl::Status Commit(const std::vector<Waiting*>& group);
  absl::Status CommitAll(const std::vector<Waiting*>& group);
  absl::Status RunOne(Waiting* waiting);
  void RunGroup(const std::vector<Waiting*>& group);
  void Checkpoint(Database::Wal after);

  std::unique_ptr<Database> db_;  // Only the thread.
  const WriterHooks hooks_;
  int commits_in_wal_ = 0;      // Since a checkpoint.  Only the thread.
  bool wal_has_bytes_ = false;  // Only the thread.
  bool committed_ = false;      // Ever.  Only the thread.
  Mutex mutex_;
  CondVar work_;      // Something waits, or stop_.
  CondVar finished_;  // A group is done.
  std::deque<Waiting*> queue_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_STORE_STORE_WRITER_H_
