// Deletes jobs that have ended, and checkpoints of such jobs.
//
// What goes is written down first, in the transaction that asks whether anybody
// uses it: from then on nobody finds it.  Then its files go, and the last write
// says that they did.  A daemon that dies between the two ends it when it
// starts again (FinishAll).
//
// A result that stays is marked as its project's before that, for nobody could
// say any more whose it is.
//
// Thread-safe: two calls about one job are one too many, and the second is
// kAborted.  Blocks on the disk.
#ifndef ROUNDHOUSE_SERVER_REMOVAL_REMOVER_H_
#define ROUNDHOUSE_SERVER_REMOVAL_REMOVER_H_

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "server/admission/job_paths.h"
#include "server/removal/job_remains.h"
#include "server/removal/readings.h"
#include "server/removal/weight_use.h"
#include "server/store/store.h"

namespace roundhouse {

class Remover {
 public:
  // All outlive it.
  Remover(JobStore& store, const JobPaths& paths, Readings& readings);
  Remover(const Remover&) = delete;
  Remover& operator=(const Remover&) = delete;

  enum class Output { kKept, kRemoved };
  // `remains` are the job's.  Answers why files are still there, "" if they are
  // not.  kFailedPrecondition: it has not ended, or who uses it; kNotFound,
  // kAborted.
  absl::StatusOr<std::string> RemoveJob(const JobRecord& job,
                                        const JobRemains& remains,
                                        Output output, const std::string& who);
  // All of them, or none: kNotFound where one is not there.
  absl::StatusOr<std::string> RemoveCheckpoints(
      const JobRecord& job, const std::vector<CheckpointRecord>& checkpoints,
      const std::string& who);
  // What is used or read now, for a look at many paths.
  class Used {
   public:
    bool IsFree(const std::string& path) const {
      return !WeightUse::IsAmong(state_.Below(path), names_) &&
             readings_.CheckUnread({path}).ok();
    }

   private:
    friend class Remover;
    Used(std::vector<std::string> names, const StatePaths& state,
         const Readings& readings)
        : names_(std::move(names)), state_(state), readings_(readings) {}

    const std::vector<std::string> names_;
    const StatePaths& state_;
    const Readings& readings_;
  };
  // This outlives it.
  absl::StatusOr<Used> FindUsed() const;
  // Steps of the job's checkpoints without those that go.
  absl::StatusOr<std::vector<int64_t>> StepsOf(const JobRecord& job) const;
  // Whether these, which are the job's, could be removed now.
  absl::Status CheckUnused(const JobRecord& job,
                           const std::vector<std::string>& paths) const;

  // For a daemon that has just started.  What can't be removed is logged, and
  // tried again by the next one.
  void FinishAll();

  const WeightUse& use() const { return use_; }

 private:
  class Turn;  // of one call about a job

  absl::StatusOr<ReadingTicket> Close(const JobRecord& job,
                                      const std::vector<std::string>& paths);
  absl::Status CheckNoUser(Database* db, const JobRecord& job,
                           const std::vector<std::string>& paths) const;
  // `end`, while nobody reads `going` and no other call is about the job.
  absl::Status Alone(const std::string& job, const std::string& uid,
                     const std::vector<std::string>& going,
                     const std::function<absl::Status()>& end);
  std::string Folder(const std::string& uid) const;
  absl::Status MarkOutput(const JobRecord& job, const JobRemains& remains);
  absl::Status EndJob(const RemovedJob& job);
  absl::Status RemoveOutput(const RemovedJob& job);
  absl::Status EndCheckpoint(const RemovedCheckpoint& checkpoint);

  JobStore& store_;
  const JobPaths& paths_;
  Readings& readings_;
  const WeightUse use_;
  const StatePaths state_;
  Mutex mutex_;
  std::set<std::string> busy_ ABSL_GUARDED_BY(mutex_);  // uids
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_REMOVAL_REMOVER_H_
