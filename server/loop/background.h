// Work that may wait for the disk, for somebody who runs on the event loop: the
// work runs on a thread beside the loop, what follows from it on the loop.
//
//   background_.Run<absl::StatusOr<Model>>(
//       [path] { return OpenModel(path); },
//       [this](absl::StatusOr<Model> model) { OnModel(std::move(model)); });
//
// Pieces of work of one Background run one after the other, in the order given;
// those of several run side by side.  Once it is destroyed nothing follows from
// its work any more, but work that was given is still done: it uses only what
// it holds itself, or what outlives EventLoop::Run.
//
// Runs on the event loop's thread; Run never calls `then` itself.
#ifndef ROUNDHOUSE_SERVER_LOOP_BACKGROUND_H_
#define ROUNDHOUSE_SERVER_LOOP_BACKGROUND_H_

#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "server/loop/event_loop.h"

namespace roundhouse {

// Pieces of work of one Background that wait.
inline constexpr size_t kMaxBackgroundPieces = 4096;

class Background {
 public:
  explicit Background(EventLoop& loop);
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Result is a Status or a StatusOr.  `then` gets UNAVAILABLE in place of what
  // the work answers where too much work waits.
  template <typename Result>
  void Run(std::function<Result()> work, std::function<void(Result)> then) {
    auto result = std::make_shared<Result>(
        absl::UnavailableError("too much work waits for the disk"));
    const std::weak_ptr<bool> here = here_;
    std::function<void()> follow = [here, result, then = std::move(then)] {
      if (!here.expired()) then(std::move(*result));
    };
    const auto job = [loop = &loop_, work = std::move(work), result, follow] {
      *result = work();
      loop->PostAnswer(follow);
    };
    // Comes at the loop's end, too, where no timer does.
    if (!Add(job)) loop_.WhenIdle(follow);
  }

 private:
  struct Line;

  bool Add(std::function<void()> piece);

  EventLoop& loop_;
  const std::shared_ptr<Line>
      line_;  // shared with the thread that works it off
  // Expires with this object.
  const std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_LOOP_BACKGROUND_H_
