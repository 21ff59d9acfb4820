// The host worker's threads: they share out the chunks of one operation.
//
// Each index is worked on by one thread, so results do not depend on how many
// there are.  Owner: the host worker.  Run is called by one thread at a time.
#ifndef ROUNDHOUSE_WORKER_HOST_CHUNK_POOL_H_
#define ROUNDHOUSE_WORKER_HOST_CHUNK_POOL_H_

#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"

namespace roundhouse::worker {

class ChunkPool {
 public:
  // `thread` is 0 .. threads - 1, and at most `width` - 1 in a Run.
  using Work = std::function<absl::Status(int thread, uint64_t index)>;

  // `start` runs first on every thread.  REQUIRES: threads >= 1.
  ChunkPool(int threads, std::function<void()> start);
  ~ChunkPool();
  ChunkPool(const ChunkPool&) = delete;
  ChunkPool& operator=(const ChunkPool&) = delete;

  int threads() const { return static_cast<int>(threads_.size()); }

  // Calls work(thread, index) for each index below `count` on at most `width`
  // threads and returns when all are done; after a failure no further index is
  // started and the first failure is returned.  `beat` is called on the
  // caller's thread about every second in which an index was finished.
  // REQUIRES: 1 <= width.
  absl::Status Run(int width, uint64_t count, const Work& work,
                   const std::function<void()>& beat);

 private:
  void ThreadMain(int thread, const std::function<void()>& start);
  bool Over() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return next_ >= count_ && active_ == 0;
  }
  // Works on the next index.  Releases the mutex meanwhile.
  void WorkOn(int thread) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  CondVar wake_;      // threads: a run began, or the end
  CondVar finished_;  // caller: the run's last index is done
  const Work* work_ ABSL_GUARDED_BY(mutex_) = nullptr;
  int width_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t count_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t done_ ABSL_GUARDED_BY(mutex_) = 0;
  int active_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);

  std::vector<std::thread> threads_;
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_HOST_CHUNK_POOL_H_
