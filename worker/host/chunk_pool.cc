#include "worker/host/chunk_pool.h"

#include <utility>

#include "absl/time/time.h"
#include "base/log.h"

namespace roundhouse::worker {
namespace {

constexpr absl::Duration kBeatEvery = absl::Seconds(1);

}  // namespace

ChunkPool::ChunkPool(int threads, std::function<void()> start) {
  ROUNDHOUSE_CHECK(threads >= 1);
  for (int thread = 0; thread < threads; ++thread) {
    threads_.emplace_back([this, thread, start] { ThreadMain(thread, start); });
  }
}

ChunkPool::~ChunkPool() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
  }
  wake_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
}

absl::Status ChunkPool::Run(int width, uint64_t count, const Work& work,
                            const std::function<void()>& beat) {
  ROUNDHOUSE_CHECK(width >= 1);
  MutexLock lock(mutex_);
  work_ = &work;
  width_ = width;
  count_ = count;
  next_ = done_ = 0;
  failure_ = absl::OkStatus();
  wake_.NotifyAll();
  uint64_t seen = 0;
  while (true) {
    const CondVar::Deadline deadline = CondVar::DeadlineIn(kBeatEvery);
    while (!Over() && finished_.WaitUntil(mutex_, deadline)) {
    }
    if (Over()) break;
    if (std::exchange(seen, done_) == done_) continue;
    mutex_.Unlock();
    beat();
    mutex_.Lock();
  }
  work_ = nullptr;
  return failure_;
}

void ChunkPool::ThreadMain(int thread, const std::function<void()>& start) {
  start();
  MutexLock lock(mutex_);
  while (true) {
    while (!ending_ &&
           (work_ == nullptr || thread >= width_ || next_ >= count_)) {
      wake_.Wait(mutex_);
    }
    if (ending_) return;
    WorkOn(thread);
  }
}

void ChunkPool::WorkOn(int thread) {
  const uint64_t index = next_++;
  const Work& work = *work_;  // stays while it is active
  ++active_;
  mutex_.Unlock();
  absl::Status status = work(thread, index);
  mutex_.Lock();
  --active_;
  ++done_;
  if (!status.ok()) {
    if (failure_.ok()) failure_ = std::move(status);
    next_ = count_;
  }
  if (Over()) finished_.NotifyAll();
}

}  // namespace roundhouse::worker
