// Threads that a test turns itself, so that what they do has one order.
//
// While one of these lives, work pools that are made on its thread
// (work_pool.h) start no threads.  What they are given waits, in the order
// given, until Run; what still waits when a pool stops is done then, as by
// threads, or is not, after Abandon.
//
// Thread-compatible: all on the thread that made it, pools included.
#ifndef ROUNDHOUSE_SERVER_LOOP_MANUAL_THREADS_H_
#define ROUNDHOUSE_SERVER_LOOP_MANUAL_THREADS_H_

#include <deque>

namespace roundhouse {

class WorkPool;

class ManualThreads {
 public:
  // REQUIRES: no other lives on this thread.
  ManualThreads();
  // REQUIRES: no pool made meanwhile lives any more.
  ~ManualThreads();
  ManualThreads(const ManualThreads&) = delete;
  ManualThreads& operator=(const ManualThreads&) = delete;

  // Does all that waits, and what that adds.  False: nothing waited.
  bool Run();
  // The process is killed: nothing of what waits is done any more.
  void Abandon() { abandoned_ = true; }

 private:
  friend class WorkPool;

  // This thread's; null: it has none.
  static ManualThreads* Current();
  void Forget(const WorkPool* pool);

  std::deque<WorkPool*> turns_;  // one of each piece that waits
  bool abandoned_ = false;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_LOOP_MANUAL_THREADS_H_
