// The check of a job's prepared data before it trains on them: every file is
// hashed, beside the event loop, and what is damaged is prepared again from its
// source.
//
// Prepared data lie on disk for as long as their job does, and their files are
// shared with other jobs (hard links into the cache), so one flipped bit would
// be trained on by all of them.
//
// Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_DATASET_PREPARED_DATA_H_
#define ROUNDHOUSE_SERVER_DATASET_PREPARED_DATA_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "server/dataset/preparer.h"
#include "server/loop/event_loop.h"
#include "server/loop/work_pool.h"

namespace roundhouse {

class PreparedDataCheck {
 public:
  struct Result {
    // OK: the data are whole now.  INVALID_ARGUMENT: they were damaged, and the
    // source is gone or can't be read any more; DATA_LOSS: the same, but the
    // disk failed and they may be whole; else what Preparer ended with, or
    // UNAVAILABLE where a file can't be read just now.
    absl::Status status;
    std::string damage;  // what was found, and mended; "": nothing
  };

  // Checks the splits that preparing with `options` makes.  `done` is called
  // once, from the loop and never from within Start; it may destroy the check.
  static std::unique_ptr<PreparedDataCheck> Start(
      EventLoop& loop, const PreparerOptions& options,
      std::function<void(const Result&)> done);
  // Gives up what goes on; `done` is not called any more.
  ~PreparedDataCheck();
  PreparedDataCheck(const PreparedDataCheck&) = delete;
  PreparedDataCheck& operator=(const PreparedDataCheck&) = delete;

 private:
  PreparedDataCheck(EventLoop& loop, const PreparerOptions& options,
                    std::function<void(const Result&)> done);

  void Verify();
  void OnVerified(const absl::Status& found);
  void PrepareAgain();
  void OnPrepared(const absl::Status& status);
  absl::Status WithoutData(const std::string& why) const;
  void Finish(absl::Status status);

  EventLoop& loop_;
  const PreparerOptions options_;
  const std::function<void(const Result&)> done_;
  std::string damage_;
  bool unread_ = false;  // the disk did not give them
  std::unique_ptr<Preparer> preparer_;
  std::atomic<bool> stop_{false};
  // Expires with this object: what was posted to the loop asks for it.
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  WorkPool background_{1};  // last: its thread ends first
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DATASET_PREPARED_DATA_H_
