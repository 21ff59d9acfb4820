#include "server/loop/background.h"

#include <deque>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"

namespace roundhouse {

struct Background::Line {
  Mutex mutex;
  std::deque<std::function<void()>> waiting ABSL_GUARDED_BY(mutex);
  bool worked_off ABSL_GUARDED_BY(mutex) = false;

  // Until nothing waits; one thread at a time.
  void WorkOff() {
    while (true) {
      std::function<void()> piece;
      {
        const MutexLock lock(mutex);
        if (waiting.empty()) {
          worked_off = false;
          return;
        }
        piece = std::move(waiting.front());
        waiting.pop_front();
      }
      piece();
    }
  }
};

Background::Background(EventLoop& loop, Thread thread,
                       std::function<void()> after_each)
    : loop_(loop),
      after_each_(std::move(after_each)),
      line_(thread == Thread::kShared ? std::make_shared<Line>() : nullptr) {
  if (thread == Thread::kOwn) own_.emplace(1, kMaxBackgroundPieces);
}

Background::~Background() = default;

bool Background::Add(std::function<void()> piece) {
  if (own_.has_value()) return own_->TryRun(std::move(piece));
  {
    const MutexLock lock(line_->mutex);
    if (line_->waiting.size() >= kMaxBackgroundPieces) return false;
    line_->waiting.push_back(std::move(piece));
    if (std::exchange(line_->worked_off, true)) return true;
  }
  if (loop_.RunBeside([line = line_] { line->WorkOff(); })) return true;
  const MutexLock lock(line_->mutex);
  line_->worked_off = false;
  line_->waiting.pop_back();  // nobody else adds, and nobody took it
  return false;
}

}  // namespace roundhouse
