// The host worker's threads: they share out the chunks of one operation.
//
// Each index is worked on by one thread, so results do not depend on how many
// there are.  Owner: the host worker.  Run is called by one thread at a time.
#ifndef ROUNDHOUSE_WORKER_HOST_CHUNK_POOL_H_
#define ROUNDHOUSE_WORKER_HOST_CHUNK_POOL_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"

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
  void WorkOn(int thread, std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable wake_;      // threads: a run began, or the end
  std::condition_variable finished_;  // caller: the run's last index is done
  // Guarded by mutex_.
  const Work* work_ = nullptr;
  int width_ = 0;
  uint64_t count_ = 0;
  uint64_t next_ = 0;
  uint64_t done_ = 0;
  int active_ = 0;
  bool ending_ = false;
  absl::Status failure_;

  std::vector<std::thread> threads_;
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_HOST_CHUNK_POOL_H_
