#include "server/loop/work_pool.h"

#include <utility>

#include "server/loop/manual_threads.h"

namespace roundhouse {

WorkPool::WorkPool(int threads, size_t max_waiting)
    : manual_(ManualThreads::Current()), max_waiting_(max_waiting) {
  if (manual_ != nullptr) return;
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
  if (manual_ == nullptr) return;
  manual_->Forget(this);
  MutexLock lock(mutex_);
  if (manual_->abandoned_) queue_.clear();
  while (!queue_.empty()) {
    mutex_.Unlock();
    RunOne();
    mutex_.Lock();
  }
}

bool WorkPool::TryRun(std::function<void()> work) {
  {
    MutexLock lock(mutex_);
    if (stop_ || queue_.size() >= max_waiting_) return false;
    queue_.push_back(std::move(work));
  }
  if (manual_ != nullptr) {
    manual_->turns_.push_back(this);
  } else {
    changed_.NotifyOne();
  }
  return true;
}

void WorkPool::RunOne() {
  std::function<void()> work;
  {
    MutexLock lock(mutex_);
    if (queue_.empty()) return;
    work = std::move(queue_.front());
    queue_.pop_front();
  }
  work();
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
