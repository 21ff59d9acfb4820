// Group commit: one thread that owns the write connection.  Writes that wait at
// the same time share one transaction and one fsync; each runs in a savepoint,
// so that a refused one leaves no trace and does not touch the others.
//
// Thread-safe.
#ifndef ROUNDHOUSE_SERVER_STORE_STORE_WRITER_H_
#define ROUNDHOUSE_SERVER_STORE_STORE_WRITER_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/store/store_db.h"

namespace roundhouse {

inline constexpr size_t kMaxWaitingWrites = 4096;
inline constexpr size_t kMaxWritesPerCommit = 128;

class StoreWriter {
 public:
  using Write = std::function<absl::Status(Database*)>;

  // `committed` runs on the writer's thread after each commit, no lock held,
  // with how long it took.
  StoreWriter(std::unique_ptr<Database> db,
              std::function<void(absl::Duration)> committed);
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
  absl::Status Commit(const std::vector<Waiting*>& group);
  absl::Status RunOne(Waiting* waiting);

  std::unique_ptr<Database> db_;  // Only the thread.
  const std::function<void(absl::Duration)> committed_;
  std::mutex mutex_;
  std::condition_variable work_;      // Something waits, or stop_.
  std::condition_variable finished_;  // A group is done.
  std::deque<Waiting*> queue_;        // Guarded by mutex_.
  bool stop_ = false;                 // Guarded by mutex_.
  std::thread thread_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_STORE_STORE_WRITER_H_
