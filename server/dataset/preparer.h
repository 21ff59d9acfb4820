// Runs server/prepare/prepare.py for one job: the training split, then the
// validation split with the bigram baseline, one child after the other.  A
// child that can't be started for want of descriptors, processes or memory is
// tried again until it can; one that somebody else killed is started again, at
// most kMaxHelperDeaths - 1 times in all.  A file to give it that does not open
// within its limit (open_limit.h) ends it with DATA_LOSS.
#ifndef ROUNDHOUSE_SERVER_DATASET_PREPARER_H_
#define ROUNDHOUSE_SERVER_DATASET_PREPARER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/dataset/dataset_helper.h"
#include "server/loop/event_loop.h"

namespace roundhouse {

struct PreparerOptions {
  HelperProgram program;
  ReadingOptions reading;  // data_files: the training split's
  // Rows of a split of their own; where there are none, those that
  // reading.validation_split holds out, if it does.
  std::vector<std::string> validation_files;
  std::string output_directory;  // gets train/ and validation/
  std::string cache_directory;   // same file system; "": none
  // Names the files that both splits read; it is asked beside the loop before
  // each split.  Empty: names are paths, for tests.
  GivenFiles given;
  // Called from the loop with the share, 0 to 1, of the training split's files
  // that is read, or of the validation split's, which follows.
  std::function<void(bool validation, double share)> progress = [](bool,
                                                                   double) {};
};

inline bool HasValidation(const PreparerOptions& options) {
  return !options.validation_files.empty() ||
         options.reading.validation_split > 0;
}

class Preparer {
 public:
  // `done` is called once, from the loop, with what DatasetHelper ended with.
  static std::unique_ptr<Preparer> Start(
      EventLoop& loop, const PreparerOptions& options,
      std::function<void(absl::Status)> done);
  // Kills the child; `done` is not called any more.
  ~Preparer();

 private:
  Preparer(EventLoop& loop, const PreparerOptions& options,
           std::function<void(absl::Status)> done);

  enum class Split { kTrain, kValidation };
  void StartSplit(Split split);
  void OnNotStarted(Split split, const absl::Status& status);
  void OnEnded(Split split, const absl::Status& status);
  void Finish(absl::Status status);

  EventLoop& loop_;
  const PreparerOptions options_;
  std::function<void(absl::Status)> done_;
  std::unique_ptr<DatasetHelper> helper_;
  EventLoop::TimerId next_ = 0;  // what follows the child's end
  bool told_of_shortage_ = false;
  int deaths_ = 0;  // of children that somebody else killed
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DATASET_PREPARER_H_
