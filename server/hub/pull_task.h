// A pull as whoever asked for it sees it: what was asked, how far it is, how it
// ended.
#ifndef ROUNDHOUSE_SERVER_HUB_PULL_TASK_H_
#define ROUNDHOUSE_SERVER_HUB_PULL_TASK_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "server/spec/hub_cache.h"
#include "server/uploads/uploads.h"

namespace roundhouse {

// What somebody wants of the hub, and as what.
struct PullWish {
  HubName model;
  std::string name;  // of the upload
  std::string project;
  std::string owner;
  // Asked from the pull's own thread, once what comes is known.
  ReadsProject reads;
  std::function<absl::Status(const NewUpload&, uint64_t bytes)> room;
};

// In this order; after a hash that was wrong it fetches again.
enum class PullPhase { kAsking, kFetching, kChecking };

struct PullProgress {
  PullPhase phase = PullPhase::kAsking;
  uint64_t done_bytes = 0;   // fetched; while it is checked, checked
  uint64_t total_bytes = 0;  // 0: not known yet
  size_t file = 0;           // that is fetched, from 1; 0: none yet
  size_t file_count = 0;
  std::string file_name;
  std::string trouble;  // why it waits before another try; "": it does not

  bool operator==(const PullProgress&) const = default;
};

struct PulledModel {
  UploadRecord record;  // finished
  std::string commit;
  std::vector<std::string> left_out;  // names of files, at most so many of ...
  size_t left_out_count = 0;          // ... these
};

// Thread-safe.
class PullTask {
 public:
  PullProgress progress() const {
    MutexLock lock(mutex_);
    return progress_;
  }
  // Nothing while it runs.
  std::optional<absl::StatusOr<PulledModel>> result() const {
    MutexLock lock(mutex_);
    return result_;
  }
  // It ends about a second later; what has come stays.
  void Cancel() {
    MutexLock lock(mutex_);
    cancelled_ = true;
    changed_.NotifyAll();
  }
  // The same, for somebody who does it instead.
  void TakeOver() {
    MutexLock lock(mutex_);
    cancelled_ = taken_over_ = true;
    changed_.NotifyAll();
  }
  bool taken_over() const {
    MutexLock lock(mutex_);
    return taken_over_;
  }
  bool cancelled() const {
    MutexLock lock(mutex_);
    return cancelled_;
  }

  // For whoever does it.

  void SetProgress(const PullProgress& progress) {
    MutexLock lock(mutex_);
    progress_ = progress;
  }
  void Finish(absl::StatusOr<PulledModel> result) {
    MutexLock lock(mutex_);
    result_ = std::move(result);
  }
  // Sleeps; false: cancelled, before or meanwhile.
  bool Wait(absl::Duration time) {
    const CondVar::Deadline deadline = CondVar::DeadlineIn(time);
    MutexLock lock(mutex_);
    while (!cancelled_ && changed_.WaitUntil(mutex_, deadline)) {
    }
    return !cancelled_;
  }

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  PullProgress progress_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::StatusOr<PulledModel>> result_ ABSL_GUARDED_BY(mutex_);
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool taken_over_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_HUB_PULL_TASK_H_
