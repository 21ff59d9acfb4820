#include "server/loop/work_pool.h"

#include <utility>

namespace roundhouse {

WorkPool::WorkPool(int threads, size_t max_waiting)
    : max_waiting_(max_waiting) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { Loop(); });
  }
}

WorkPool::~WorkPool() { Stop(); }

void WorkPool::Stop() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.NotifyAll();
  for (std::thread& t : threads_) t.join();
  threads_.clear();
}

bool WorkPool::TryRun(std::function<void()> work) {
  {
    MutexLock lock(mutex_);
    if (stop_ || queue_.size() >= max_waiting_) return false;
    queue_.push_back(std::move(work));
  }
  changed_.NotifyOne();
  return true;
}

void WorkPool::Loop() {
  MutexLock lock(mutex_);
  while (true) {
    while (!stop_ && queue_.empty()) changed_.Wait(mutex_);
    if (queue_.empty()) return;
    const std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    mutex_.Unlock();
    work();
    mutex_.Lock();
  }
}

}  // namespace roundhouse
