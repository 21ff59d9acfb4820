#include "server/run/background_line.h"

#include <utility>

#include "base/log.h"

namespace roundhouse {

void BackgroundLine::Run(std::function<absl::Status()> work, Done done) {
  ++count_;
  // Moved: a status that two threads held would be freed by either, which
  // ThreadSanitizer cannot follow into Abseil's library.
  const bool taken = pool_.TryRun(
      [this, work = std::move(work), done = std::move(done)]() mutable {
        absl::Status status = work();
        loop_.PostAnswer(
            [this, status = std::move(status), done = std::move(done)] {
              --count_;
              done(status);
              after_each_();
            });
      });
  ROUNDHOUSE_CHECK(taken) << "more background work than a job ever has";
}

}  // namespace roundhouse
