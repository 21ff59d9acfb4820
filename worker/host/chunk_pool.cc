#include "worker/host/chunk_pool.h"

#include <chrono>
#include <utility>

#include "base/log.h"

namespace roundhouse::worker {

ChunkPool::ChunkPool(int threads, std::function<void()> start) {
  ROUNDHOUSE_CHECK(threads >= 1);
  for (int thread = 0; thread < threads; ++thread) {
    threads_.emplace_back([this, thread, start] { ThreadMain(thread, start); });
  }
}

ChunkPool::~ChunkPool() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

absl::Status ChunkPool::Run(int width, uint64_t count, const Work& work,
                            const std::function<void()>& beat) {
  ROUNDHOUSE_CHECK(width >= 1);
  std::unique_lock<std::mutex> lock(mutex_);
  work_ = &work;
  width_ = width;
  count_ = count;
  next_ = done_ = 0;
  failure_ = absl::OkStatus();
  wake_.notify_all();
  const auto over = [this] { return next_ >= count_ && active_ == 0; };
  uint64_t seen = 0;
  while (!finished_.wait_for(lock, std::chrono::seconds(1), over)) {
    if (std::exchange(seen, done_) == done_) continue;
    lock.unlock();
    beat();
    lock.lock();
  }
  work_ = nullptr;
  return failure_;
}

void ChunkPool::ThreadMain(int thread, const std::function<void()>& start) {
  start();
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] {
      return ending_ || (work_ != nullptr && thread < width_ && next_ < count_);
    });
    if (ending_) return;
    WorkOn(thread, lock);
  }
}

void ChunkPool::WorkOn(int thread, std::unique_lock<std::mutex>& lock) {
  const uint64_t index = next_++;
  ++active_;
  lock.unlock();
  absl::Status status = (*work_)(thread, index);
  lock.lock();
  --active_;
  ++done_;
  if (!status.ok()) {
    if (failure_.ok()) failure_ = std::move(status);
    next_ = count_;
  }
  if (next_ >= count_ && active_ == 0) finished_.notify_all();
}

}  // namespace roundhouse::worker
