// Runs server/jobs/prepare.py for one job: the training split, then the
// validation split with the bigram baseline.
//
// One short-lived child after the other, supervised from the event loop's
// thread.  What it prints on stderr as a JSON line is the error that is
// reported; what it prints on stdout says that it is alive.
#ifndef ROUNDHOUSE_SERVER_JOBS_PREPARER_H_
#define ROUNDHOUSE_SERVER_JOBS_PREPARER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/limits.h"
#include "server/pool/child_process.h"
#include "server/pool/event_loop.h"

namespace roundhouse {

// Of every run of the helper.
std::vector<std::string> HelperEnvironment();

// Why the helper ended with `wait_status` other than 0: its JSON line on
// stderr, or all that it wrote when there is none.  INVALID_ARGUMENT with file
// and line (the dataset is bad), RESOURCE_EXHAUSTED (disk full) or INTERNAL.
absl::Status HelperError(int wait_status, const std::string& errors);

struct PreparerOptions {
  std::string python;  // interpreter with the tokenizers package
  std::string script;  // prepare.py
  std::string tokenizer_directory;
  std::string train_file;
  std::string validation_file;       // "": none
  std::string output_directory;      // gets train/ and validation/
  std::string cache_directory;       // same file system; "": none
  int64_t max_length = 0;            // tokens
  std::string truncation = "right";  // of longer sequences; or left, drop
  bool packing = false;              // several sequences a row
  int64_t seed = 0;                  // of which share a row
  std::string template_date;         // YYYY-MM-DD, for templates that ask
  // A child that prints nothing for this long is killed.
  absl::Duration silence_limit = absl::Seconds(kMaxHelperSilenceSeconds);
};

class Preparer {
 public:
  // `done` is called once, from the loop: OK, INVALID_ARGUMENT with file and
  // line (the dataset is bad), RESOURCE_EXHAUSTED (disk full),
  // DEADLINE_EXCEEDED (no progress within the silence limit) or INTERNAL.
  static std::unique_ptr<Preparer> Start(
      EventLoop& loop, const PreparerOptions& options,
      std::function<void(absl::Status)> done);
  // Kills the child; `done` is not called any more.
  ~Preparer();

 private:
  Preparer(EventLoop& loop, const PreparerOptions& options,
           std::function<void(absl::Status)> done);

  void StartSplit(bool validation);
  void OnExit(bool validation, int wait_status);
  void OnProgress();
  void OnSilence();
  absl::Status SilenceError() const;
  void Finish(absl::Status status);

  EventLoop& loop_;
  const PreparerOptions options_;
  std::function<void(absl::Status)> done_;
  std::unique_ptr<ChildProcess> child_;
  EventLoop::TimerId next_ = 0;  // what follows the child's end
  EventLoop::TimerId watchdog_ = 0;
  bool silent_ = false;  // killed for it
  std::string data_;     // what the child reads
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_JOBS_PREPARER_H_
