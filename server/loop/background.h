// Work beside the event loop, for somebody who runs on it: what may wait for a
// disk, or takes long, runs on a thread, and what follows from it on the loop.
//
//   background_.Run<absl::StatusOr<Model>>(
//       [path] { return OpenModel(path); },
//       [this](absl::StatusOr<Model> model) { OnModel(std::move(model)); });
//
// The one contract for such work:
//
// Order.  Pieces of work of one Background run one after the other, in the
// order given, and so does what follows from them.  Those of several run side
// by side: whoever wants that has several.
//
// Threads.  kShared: the few that all of the loop's have together
// (EventLoop::RunBeside), for work that is short when the disk is well.  kOwn:
// a thread of its own, for work that takes long, or uses what its owner has.
//
// Limits.  kMaxBackgroundPieces wait, and of all shared ones kMaxLoopWork.
// Beyond them nothing is run and `then` gets UNAVAILABLE.
//
// Its owner goes.  Nothing follows any more.  What was given is still done.
// kShared: after that, so the work uses only what it holds itself, or what
// outlives EventLoop::Run.  kOwn: before the destructor returns, which waits;
// it is the owner's last member, and the work may use all others.
//
// The daemon ends.  EventLoop::Run's end waits for shared work and runs what
// follows from it.  What follows from work of an own thread comes as long as
// the loop runs.  Work that hangs below a dead mount holds neither up: files
// that people name are opened within a limit (base/files/open_limit.h).
//
// Runs on the event loop's thread; Run never calls `then` itself.
#ifndef ROUNDHOUSE_SERVER_LOOP_BACKGROUND_H_
#define ROUNDHOUSE_SERVER_LOOP_BACKGROUND_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "server/loop/event_loop.h"
#include "server/loop/work_pool.h"

namespace roundhouse {

// Pieces of work of one Background that wait.
inline constexpr size_t kMaxBackgroundPieces = 4096;

class Background {
 public:
  enum class Thread { kShared, kOwn };

  // `loop` outlives it.  `after_each` comes after each piece's `then`, unless
  // that has destroyed this.
  explicit Background(
      EventLoop& loop, Thread thread = Thread::kShared,
      std::function<void()> after_each = [] {});
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Result is a Status or a StatusOr.
  template <typename Result>
  void Run(std::function<Result()> work, std::function<void(Result)> then) {
    ++count_;
    auto result = std::make_shared<Result>(
        absl::UnavailableError("too much work waits for the disk"));
    std::function<void()> follow = [this, here = std::weak_ptr<bool>(here_),
                                    result, then = std::move(then)] {
      if (here.expired()) return;
      --count_;
      then(std::move(*result));
      if (!here.expired()) after_each_();
    };
    // What the work holds goes before it is answered, and what follows is the
    // loop's alone then: no two threads let go of one thing.
    auto piece = [loop = &loop_, work = std::move(work), result,
                  follow]() mutable {
      *result = work();
      work = nullptr;
      result.reset();
      loop->PostAnswer(std::move(follow));
    };
    // Comes at the loop's end, too, where no timer does.
    if (!Add(std::move(piece))) loop_.WhenIdle(std::move(follow));
  }
  void Run(std::function<absl::Status()> work,
           std::function<void(absl::Status)> then) {
    Run<absl::Status>(std::move(work), std::move(then));
  }

  // Something was given whose `then` has not come.
  bool busy() const { return count_ > 0; }

 private:
  struct Line;

  bool Add(std::function<void()> piece);

  EventLoop& loop_;
  const std::function<void()> after_each_;
  int count_ = 0;
  // Shared with the thread that works it off; null: there is an own one.
  const std::shared_ptr<Line> line_;
  // Expires with this object.
  const std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
  std::optional<WorkPool> own_;  // its thread ends first
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_LOOP_BACKGROUND_H_
