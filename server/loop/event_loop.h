// The daemon's one control thread: descriptors, timers, and closures posted by
// other threads, one after the other.
//
// Everything of a job that decides runs here, so that it needs no locks.  Post
// is thread-safe; all else runs on the loop's thread (or before Run).
// Callbacks may watch, unwatch, post and set timers.  Nothing that the loop
// runs opens a file, or looks one up by its name: such work goes to the threads
// beside it (background.h).  Tests look on (tests/fakes/loop_guard.cc).
#ifndef ROUNDHOUSE_SERVER_LOOP_EVENT_LOOP_H_
#define ROUNDHOUSE_SERVER_LOOP_EVENT_LOOP_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "server/loop/work_pool.h"

namespace roundhouse {

// At most this many closures wait to run; Post refuses more.
inline constexpr size_t kMaxPostedClosures = 65536;
// Threads for work that may wait for the disk, and how much of it waits.
inline constexpr int kLoopWorkThreads = 4;
inline constexpr size_t kMaxLoopWork = 4096;
// What waits for a quiet moment waits no longer.
inline constexpr absl::Duration kMostIdleDelay = absl::Milliseconds(2);

class EventLoop {
 public:
  // `clock`, which outlives it, says when timers are due.
  static absl::StatusOr<std::unique_ptr<EventLoop>> Create(
      const Clock& clock = SystemClock());
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // For who runs here and decides by the time.
  const Clock& clock() const { return clock_; }

  // Calls `ready` with the epoll events (EPOLLIN ...) whenever there are some.
  // REQUIRES: `fd` is not watched yet; it stays open until Unwatch.
  void Watch(int fd, uint32_t events, std::function<void(uint32_t)> ready);
  // No effect on a descriptor that is not watched (any more).
  void SetEvents(int fd, uint32_t events);
  // No call of `ready` follows.
  void Unwatch(int fd);

  using TimerId = uint64_t;
  TimerId After(absl::Duration delay, std::function<void()> closure);
  // No effect on a timer that has fired.
  void CancelTimer(TimerId id);

  // Runs `closure` on the loop's thread, in the order posted.  UNAVAILABLE once
  // the loop has quit, RESOURCE_EXHAUSTED when too many wait.
  absl::Status Post(std::function<void()> closure);

  // Runs `work` on a thread beside the loop, where it may wait for the disk.
  // False, and it is not run: too much waits, or the loop has quit.  The end of
  // Run waits for work: what it uses must live as long, or belong to it.
  bool RunBeside(std::function<void()> work);

  // The answer to work that the loop's thread gave to another one: as Post, but
  // never refused while the loop runs, for who gives such work bounds it.
  void PostAnswer(std::function<void()> closure);

  // No work beside the loop is taken any more, and what was taken is done when
  // this returns.  Run's end does so, too: for a loop that may never run.
  void StopBeside() { beside_.Stop(); }

  // Runs `closure` once no descriptor is ready, or kMostIdleDelay after the
  // first that waits so: what need not come before the next message.
  void WhenIdle(std::function<void()> closure);

  // Tells how long each turn of Run took: everything that was ready at once,
  // the wait for it not included.  Call before Run; `told` is short.
  void TellTurns(std::function<void(absl::Duration)> told) {
    turn_ended_ = std::move(told);
  }

  // Until Quit, which may be called from callbacks.  Closures posted before
  // Quit still run, and so do those that wait for a quiet moment, and work
  // beside the loop with what it posts.
  void Run();
  void Quit() { quitting_ = true; }

  // In place of Run for who moves the loop's clock itself (tests/sim): one
  // turn, which waits at most this long for descriptors and closures, and not
  // for timers.  False: there was nothing to do.  Quit and Run end it.
  bool RunTurn(absl::Duration most);
  // When the first timer is due; none: there is none.
  std::optional<int64_t> next_timer_ns() const;

 private:
  EventLoop(int epoll_fd, int event_fd, const Clock& clock)
      : epoll_fd_(epoll_fd), event_fd_(event_fd), clock_(clock) {}

  struct Watched {
    uint64_t id = 0;
    std::shared_ptr<std::function<void(uint32_t)>> ready;  // outlives Unwatch
  };

  void Wake();
  void Finish();
  // False: nothing was.
  bool RunReady(int epoll_timeout_ms);
  bool RunPosted();
  void RunIdle();
  bool RunTimers();
  int TimeoutMs() const;

  const int epoll_fd_;
  const int event_fd_;
  const Clock& clock_;
  std::unordered_map<int, Watched> watched_;
  std::unordered_map<uint64_t, int> fd_of_;
  uint64_t next_id_ = 1;
  std::map<std::pair<int64_t, TimerId>, std::function<void()>> timers_;
  std::unordered_map<TimerId, int64_t> timer_due_ns_;
  std::vector<std::function<void()>> idle_;
  int64_t idle_due_ns_ = 0;  // of the first of them
  bool quitting_ = false;
  std::function<void(absl::Duration)> turn_ended_;
  Mutex mutex_;
  std::deque<std::function<void()>> posted_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  WorkPool beside_{kLoopWorkThreads, kMaxLoopWork};  // ends first
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_LOOP_EVENT_LOOP_H_
