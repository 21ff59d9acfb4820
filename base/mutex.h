// The tree's mutex and condition variable, which clang's thread-safety analysis
// understands (.ci/thread_safety).
//
//   class Queue {
//     ...
//     Mutex mutex_;
//     CondVar wake_;
//     std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
//   };
//
//   MutexLock lock(mutex_);
//   while (tasks_.empty()) wake_.Wait(mutex_);
//
// They are std::mutex and std::condition_variable with annotations, at no cost;
// clang sees nothing of libstdc++'s own.  They are not absl::Mutex, for two
// reasons.  ThreadSanitizer knows pthread's mutexes by itself, but absl::Mutex
// only where Abseil itself was built with it, and Debian's was not: every field
// that one guards would be reported.  And a wait with a limit goes by
// CLOCK_MONOTONIC here; in Debian's release of Abseil (20220623) it goes by
// CLOCK_REALTIME, so that setting the clock would shorten or lengthen it.
//
// A function that runs with a lock is annotated ABSL_EXCLUSIVE_LOCKS_REQUIRED.
// It may release the mutex for a while (Unlock, then Lock) if its comment says
// so.  A condition is a loop around Wait: the analysis looks at each lambda
// alone and does not know what its caller holds.
//
// Threads of one process only: what processes share in the arena are words and
// doorbells (base/wire/words.h).  A mutex that another thread holds while the
// process forks stays locked in the child, which therefore locks none before it
// executes a program.
#ifndef ROUNDHOUSE_BASE_MUTEX_H_
#define ROUNDHOUSE_BASE_MUTEX_H_

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"

namespace roundhouse {

// Not recursive.  Constant-initialised: may be a namespace's variable.
class ABSL_LOCKABLE Mutex {
 public:
  constexpr Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds the mutex as long as it lives.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex)
      : mutex_(mutex) {
    mutex_.Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Thread-safe.  Waits may end without a notification.
class CondVar {
 public:
  // By CLOCK_MONOTONIC.
  using Deadline = std::chrono::steady_clock::time_point;
  // No deadline is further away.
  static constexpr absl::Duration kLongestWait = absl::Hours(24);
  static Deadline DeadlineIn(absl::Duration limit) {
    return std::chrono::steady_clock::now() +
           absl::ToChronoNanoseconds(std::min(limit, kLongestWait));
  }

  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  // Releases the mutex while it waits.
  void Wait(Mutex& mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    changed_.wait(lock);
    lock.release();
  }

  // The same, until the deadline at most.  False: it is past.
  //
  //   while (!stopping_ && wake_.WaitUntil(mutex_, deadline)) {
  //   }
  bool WaitUntil(Mutex& mutex, Deadline deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const bool in_time =
        changed_.wait_until(lock, deadline) == std::cv_status::no_timeout;
    lock.release();
    return in_time;
  }

  void NotifyOne() { changed_.notify_one(); }
  void NotifyAll() { changed_.notify_all(); }

 private:
  std::condition_variable changed_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_MUTEX_H_
