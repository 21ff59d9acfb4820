// The check of a job's prepared data before it trains on them: every file is
// hashed, beside the event loop, and what is damaged is prepared again from its
// source.
//
// Prepared data lie on disk for as long as their job does, and their files are
// shared with other jobs (hard links into the cache), so one flipped bit would
// be trained on by all of them.
//
// Damage is told before it is mended: whole data say nothing of it any more, so
// a daemon that dies, or a job that is paused, between the two would have kept
// it to itself.
//
// Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_DATASET_PREPARED_DATA_H_
#define ROUNDHOUSE_SERVER_DATASET_PREPARED_DATA_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/dataset/preparer.h"
#include "server/loop/background.h"
#include "server/loop/event_loop.h"

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
  // All from the loop and never from within Start.
  struct Calls {
    // What was found, once, before anything is done about it: nothing is until
    // `go_on` is called, from the loop.
    std::function<void(const std::string& damage, std::function<void()> go_on)>
        damaged;
    // Once; it may destroy the check.
    std::function<void(const Result&)> done;
  };

  // Checks the splits that preparing with `options` makes.
  static std::unique_ptr<PreparedDataCheck> Start(
      EventLoop& loop, const PreparerOptions& options, Calls calls);
  // Gives up what goes on; nothing is called any more.
  ~PreparedDataCheck();
  PreparedDataCheck(const PreparedDataCheck&) = delete;
  PreparedDataCheck& operator=(const PreparedDataCheck&) = delete;

 private:
  PreparedDataCheck(EventLoop& loop, const PreparerOptions& options,
                    Calls calls);

  void Verify();
  void OnVerified(const absl::Status& found);
  void LookForSources();
  void OnSources(const absl::StatusOr<std::string>& missing);
  void PrepareAgain();
  void OnPrepared(const absl::Status& status);
  absl::Status WithoutData(const std::string& why) const;
  void Finish(absl::Status status);

  EventLoop& loop_;
  const PreparerOptions options_;
  const Calls calls_;
  std::string damage_;
  bool unread_ = false;  // the disk did not give them
  std::unique_ptr<Preparer> preparer_;
  std::atomic<bool> stop_{false};
  // Expires with this object: timers and `go_on` ask for it.
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  Background background_;  // last: its thread ends first
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DATASET_PREPARED_DATA_H_
