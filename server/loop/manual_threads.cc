#include "server/loop/manual_threads.h"

#include <algorithm>

#include "base/log.h"
#include "server/loop/work_pool.h"

namespace roundhouse {
namespace {

thread_local ManualThreads* current = nullptr;

}  // namespace

ManualThreads::ManualThreads() {
  ROUNDHOUSE_CHECK(current == nullptr);
  current = this;
}

ManualThreads::~ManualThreads() { current = nullptr; }

ManualThreads* ManualThreads::Current() { return current; }

bool ManualThreads::Run() {
  if (turns_.empty()) return false;
  while (!turns_.empty()) {
    WorkPool* const pool = turns_.front();
    turns_.pop_front();
    pool->RunOne();
  }
  return true;
}

void ManualThreads::Forget(const WorkPool* pool) {
  turns_.erase(std::remove(turns_.begin(), turns_.end(), pool), turns_.end());
}

}  // namespace roundhouse
