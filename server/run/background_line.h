// One job's work that waits for the disk: off the event loop's thread, one
// piece after the other in the order given, each answered on the loop.
//
// Owned by whoever gives it work, and destroyed first: the work may read what
// its owner has.  Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_RUN_BACKGROUND_LINE_H_
#define ROUNDHOUSE_SERVER_RUN_BACKGROUND_LINE_H_

#include <cstddef>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "server/loop/event_loop.h"
#include "server/loop/work_pool.h"

namespace roundhouse {

// Pieces of work that may wait for a job's background thread.
inline constexpr size_t kMaxBackgroundWork = 16;

class BackgroundLine {
 public:
  using Done = std::function<void(absl::Status)>;

  // `loop` outlives it.  `after_each` comes after each piece's `done`.
  BackgroundLine(EventLoop& loop, std::function<void()> after_each)
      : loop_(loop), after_each_(std::move(after_each)) {}

  // Runs `work` after what was given before, then `done` with its result on
  // the loop's thread.  REQUIRES: fewer than kMaxBackgroundWork wait (checked).
  void Run(std::function<absl::Status()> work, Done done);
  // Something was given whose `done` has not come.
  bool busy() const { return count_ > 0; }

 private:
  EventLoop& loop_;
  const std::function<void()> after_each_;
  int count_ = 0;
  WorkPool pool_{1, kMaxBackgroundWork};  // dies first
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_RUN_BACKGROUND_LINE_H_
