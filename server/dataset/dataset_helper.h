// One run of server/prepare/prepare.py or a script beside it: a short-lived
// child, supervised from the event loop's thread.
//
// What it prints on stdout says that it is alive, and belongs to the caller;
// the first JSON line with an "error" on stderr is what is reported.  It is
// confined (helper_limits.h) and dies with the daemon.
#ifndef ROUNDHOUSE_SERVER_DATASET_DATASET_HELPER_H_
#define ROUNDHOUSE_SERVER_DATASET_DATASET_HELPER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/files/descriptor.h"
#include "base/limits.h"
#include "server/dataset/given_files.h"
#include "server/dataset/helper_limits.h"
#include "server/loop/background.h"
#include "server/loop/event_loop.h"
#include "server/workers/child_process.h"

namespace roundhouse {

struct HelperProgram {
  std::string python;  // interpreter with the tokenizers package
  std::string script;  // prepare.py
  // A child that prints nothing for this long is killed.
  absl::Duration silence_limit = absl::Seconds(kMaxHelperSilenceSeconds);
  // The same before it has printed anything, where that is shorter.
  absl::Duration start_limit = kHelperStartLimit;
  // A child that runs for longer is killed, whatever it prints.
  absl::Duration total_limit = absl::InfiniteDuration();
  int processes = 1;                         // that tokenise a dataset
  ChildStarter start = ChildProcess::Start;  // test only: another one
};

// How a dataset is read, whatever for.
struct ReadingOptions {
  std::string tokenizer_directory;
  std::vector<std::string> data_files;  // whose rows follow each other
  std::string format;       // as prepare.py's --format; "": by the rows' fields
  std::string columns;      // as its --columns; "": none
  int64_t max_samples = 0;  // rows, the first; 0: all
  double validation_split = 0;       // share held out of them
  int64_t max_length = 0;            // tokens
  std::string truncation = "right";  // of longer sequences; or left, drop
  bool packing = false;              // several sequences a row
  int64_t seed = 0;                  // of which share a row
  std::string template_date;         // YYYY-MM-DD, for templates that ask
  GivenFiles given;  // all that is read; empty: names are paths, for tests
};

// What a helper is started with, beside its program.
struct HelperCommand {
  std::string about;                    // begins messages about the child
  std::vector<std::string> arguments;   // behind the script's name
  std::vector<Descriptor> descriptors;  // that it inherits (ChildOptions)
  // What it is given as descriptors behind those; empty: names are paths.
  GivenFiles given;
};

class DatasetHelper {
 public:
  // `mode` are the words behind the options.  `output` gets stdout as it comes;
  // `ended` is called once, from the loop and never from within Start: OK,
  // INVALID_ARGUMENT with file and line (the dataset is bad, or takes more
  // memory or CPU time than it may), RESOURCE_EXHAUSTED (disk full),
  // DATA_LOSS (the disk fails), DEADLINE_EXCEEDED (silence, or total_limit),
  // INTERNAL, or what Kill said.  `ended` may destroy the helper.
  //
  // What is given is looked up and opened beside the loop, then the child is
  // started.  Where it can't be, `ended` gets what GivenFiles, OpenGiven,
  // CheckGiven or HelperProgram::start say, and started() is false.
  static std::unique_ptr<DatasetHelper> Start(
      EventLoop& loop, const HelperProgram& program,
      const ReadingOptions& options, const std::vector<std::string>& mode,
      std::function<void(const std::string&)> output,
      std::function<void(absl::Status)> ended);
  // The same for another script.
  static std::unique_ptr<DatasetHelper> Start(
      EventLoop& loop, const HelperProgram& program, HelperCommand command,
      std::function<void(const std::string&)> output,
      std::function<void(absl::Status)> ended);
  // Kills the child; nothing is called any more.
  ~DatasetHelper();

  // Called from the loop with the share of the files that is read, 0 to 1, at
  // each hundredth.
  void TellProgress(std::function<void(double)> progress) {
    progress_ = std::move(progress);
  }

  // Its end is waited for without blocking: a child that hangs in the kernel
  // dies only when the file system answers.  The first `why` is what is told.
  void Kill(absl::Status why);

  // Whether there has been a child.
  bool started() const { return started_; }
  // Whether it ended by a SIGKILL that is not Kill's.  REQUIRES: within
  // `ended`.
  bool killed_by_others() const { return killed_by_others_; }

 private:
  struct Opened;

  DatasetHelper(EventLoop& loop, const HelperProgram& program,
                HelperCommand command,
                std::function<void(const std::string&)> output,
                std::function<void(absl::Status)> ended);

  void OnOpened(absl::StatusOr<Opened> opened);
  absl::Status StartChild();
  void End(const absl::Status& status);
  void WaitAnew(absl::Duration limit);
  void KillAfterTotal(absl::Duration limit);
  void TakeLines(const std::string& text);
  void TakeLine(const std::string& line);
  absl::Status Failure(int wait_status) const;
  void OnOutput(const std::string& text);
  void OnExit(int wait_status);

  EventLoop& loop_;
  const HelperProgram program_;
  HelperCommand command_;  // without descriptors once the child has them
  const std::function<void(const std::string&)> output_;
  const std::function<void(absl::Status)> ended_;
  std::function<void(double)> progress_ = [](double) {};
  EventLoop::TimerId watchdog_ = 0;
  EventLoop::TimerId total_ = 0;
  bool started_ = false;
  bool heard_ = false;   // it has printed something
  std::string line_;     // the beginning of one that it is printing
  std::string place_;    // "d.jsonl:7: tokenizing its text", as it said last
  absl::Status killed_;  // not OK: why
  bool killed_by_others_ = false;
  std::shared_ptr<const Opened> opened_;  // null: it was not started
  std::unique_ptr<Child> child_;
  Background background_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DATASET_DATASET_HELPER_H_
