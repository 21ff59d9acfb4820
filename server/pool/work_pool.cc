#include "server/pool/work_pool.h"

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
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& t : threads_) t.join();
  threads_.clear();
}

bool WorkPool::TryRun(std::function<void()> work) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (stop_ || queue_.size() >= max_waiting_) return false;
    queue_.push_back(std::move(work));
  }
  changed_.notify_one();
  return true;
}

void WorkPool::Loop() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    work();
    lock.lock();
  }
}

}  // namespace roundhouse
