// A few threads that may wait for the disk: for unary calls, where gRPC's own
// must not, and for a job's files, where the event loop must not.
//
// With one thread, work runs in the order given.
//
// Thread-safe.
#ifndef ROUNDHOUSE_SERVER_LOOP_WORK_POOL_H_
#define ROUNDHOUSE_SERVER_LOOP_WORK_POOL_H_

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace roundhouse {

class ManualThreads;

inline constexpr int kApiThreads = 4;
inline constexpr size_t kMaxWaitingCalls = 256;

class WorkPool {
 public:
  explicit WorkPool(int threads = kApiThreads,
                    size_t max_waiting = kMaxWaitingCalls);
  // Stop().
  ~WorkPool();
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  // False, and `work` is not run: too many wait.
  bool TryRun(std::function<void()> work);
  // Runs what waits, then joins.  Further work is refused.
  void Stop();

 private:
  friend class ManualThreads;

  void Loop();
  // The first that waits, if one does.
  void RunOne();

  // The test that does this pool's work; null: its own threads do.
  ManualThreads* const manual_;
  const size_t max_waiting_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_LOOP_WORK_POOL_H_
