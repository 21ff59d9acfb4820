// An export as whoever asked for it sees it: what was asked, how far it is, how
// it ended.
#ifndef ROUNDHOUSE_SERVER_WEIGHTS_EXPORT_TASK_H_
#define ROUNDHOUSE_SERVER_WEIGHTS_EXPORT_TASK_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "base/mutex.h"
#include "server/access/caller.h"

namespace roundhouse {

enum class ExportKind {
  kAsIs,     // an adapter or a full model, whichever is there
  kAdapter,  // an adapter as it is
  kMerged,   // an adapter and its base as one full model
  kFull,     // a full model as it is
};

struct ExportRequest {
  Caller caller;  // who asks
  // A job, a job's checkpoint ("job-7/checkpoint-40"), or a directory under the
  // data roots.
  std::string source;
  ExportKind kind = ExportKind::kAsIs;
  // What a full model's weights are written in; none: as they are in the source
  // or the base.
  std::optional<DType> dtype;
  // A name among the server's outputs, or a directory to make under a data
  // root.
  std::string output;
};

struct ExportProgress {
  ExportKind kind = ExportKind::kAsIs;  // kAsIs: not known yet
  uint64_t done_bytes = 0;
  uint64_t total_bytes = 0;  // 0: it has not begun to write

  bool operator==(const ExportProgress&) const = default;
};

// Thread-safe.
class ExportTask {
 public:
  ExportProgress progress() const {
    MutexLock lock(mutex_);
    return progress_;
  }
  // The directory that was written, or why there is none; nothing while it
  // runs.
  std::optional<absl::StatusOr<std::string>> result() const {
    MutexLock lock(mutex_);
    return result_;
  }
  // Nothing of it is left soon after; no effect on one that has ended.
  void Cancel() { cancelled_ = true; }
  bool cancelled() const { return cancelled_; }

  // For whoever does it.
  void SetProgress(const ExportProgress& progress) {
    MutexLock lock(mutex_);
    progress_ = progress;
  }
  void Finish(absl::StatusOr<std::string> result) {
    MutexLock lock(mutex_);
    result_ = std::move(result);
  }

 private:
  mutable Mutex mutex_;
  ExportProgress progress_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::StatusOr<std::string>> result_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> cancelled_ = false;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_WEIGHTS_EXPORT_TASK_H_
