// Runs server/jobs/prepare.py for one job: the training split, then the
// validation split with the bigram baseline.
//
// One short-lived child after the other, supervised from the event loop's
// thread.  What it prints on stderr as a JSON line is the error that is
// reported.
#ifndef ROUNDHOUSE_SERVER_JOBS_PREPARER_H_
#define ROUNDHOUSE_SERVER_JOBS_PREPARER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "server/pool/child_process.h"
#include "server/pool/event_loop.h"

namespace roundhouse {

struct PreparerOptions {
  std::string python;  // interpreter with the tokenizers package
  std::string script;  // prepare.py
  std::string tokenizer_directory;
  std::string train_file;
  std::string validation_file;   // "": none
  std::string output_directory;  // gets train/ and validation/
  int64_t max_length = 0;        // tokens
};

class Preparer {
 public:
  // `done` is called once, from the loop: OK, INVALID_ARGUMENT with file and
  // line (the dataset is bad), RESOURCE_EXHAUSTED (disk full) or INTERNAL.
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
  void Finish(absl::Status status);

  EventLoop& loop_;
  const PreparerOptions options_;
  std::function<void(absl::Status)> done_;
  std::unique_ptr<ChildProcess> child_;
  EventLoop::TimerId next_ = 0;  // what follows the child's end
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_JOBS_PREPARER_H_
