// What lies on the disk for whom, and who may have it deleted: DiskEngine.
//
// A job's own bytes are those that are free once they are deleted.  In
// DiskUsage uploads with the same contents count with the first one, prepared
// data that the cache has as well with the cache, and else a part of a file
// with each name (tree_bytes.h).
//
// Thread-safe.  Blocks on the disk; a call looks at kCountedOfPage jobs or
// results at most, and holds no lock meanwhile.  Each takes a thread of all
// callers' for a while, so a caller has one at a time and all have
// kDiskCallsAtOnce: kAborted.
#ifndef ROUNDHOUSE_SERVER_REMOVAL_DISK_KEEPER_H_
#define ROUNDHOUSE_SERVER_REMOVAL_DISK_KEEPER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "server/admission/job_paths.h"
#include "server/api/disk/disk_engine.h"
#include "server/removal/remover.h"
#include "server/store/store.h"
#include "server/uploads/uploads.h"

namespace roundhouse {

inline constexpr size_t kCountedOfPage = 100;
// Rows or names that a page goes through for them.
inline constexpr int kScannedOfPage = 500;
inline constexpr size_t kDiskCallsAtOnce = 2;
// Checkpoints after whose job a page ends.
inline constexpr size_t kCheckpointsOfPage = 500;

class DiskKeeper final : public DiskEngine {
 public:
  // All outlive it.
  struct World {
    JobStore& store;
    const JobPaths& paths;
    Remover& remover;
    const Uploads* uploads = nullptr;  // null: there are none
  };
  struct Calls {
    // Whether nothing of a job that has ended goes on; any thread.
    std::function<absl::Status(const std::string& id)> check_over;
    // The job is gone.
    std::function<void(const std::string& id)> gone;
  };

  DiskKeeper(const World& world, Calls calls);

  absl::StatusOr<DeletedJob> DeleteJob(
      const DeleteJobRequest& request) override;
  absl::StatusOr<OldCheckpoints> ListOldCheckpoints(
      const OldCheckpointsQuery& query) override;
  absl::StatusOr<DeletedCheckpoints> DeleteCheckpoints(
      const DeleteCheckpointsRequest& request) override;
  absl::StatusOr<DiskUsagePage> DiskUsage(const DiskUsageQuery& query) override;
  absl::StatusOr<std::string> FindOutputOf(const std::string& project) override;

 private:
  using Turn = std::shared_ptr<const void>;  // of one call

  absl::StatusOr<Turn> Begin(const std::string& who);
  absl::Status CheckOver(const JobRecord& job) const;
  absl::StatusOr<std::vector<CheckpointRecord>> Checkpoints(
      const JobRecord& job) const;
  absl::Status AddOld(const JobRecord& job, const OldCheckpointsQuery& query,
                      const Remover::Used& used, OldCheckpoints& page) const;

  // disk_usage.cc
  void AddServer(DiskUsagePage& page) const;
  void AddUploads(const DiskUsageQuery& query, DiskUsagePage& page) const;
  // Each answers where the next page begins, "" where there is no more.
  absl::StatusOr<std::string> AddJobs(const DiskUsageQuery& query,
                                      std::optional<int64_t> before,
                                      DiskUsagePage& page) const;
  absl::StatusOr<std::string> AddExports(const DiskUsageQuery& query,
                                         size_t from,
                                         DiskUsagePage& page) const;
  absl::StatusOr<std::optional<DiskPart>> ExportNamed(
      const DiskUsageQuery& query, const std::string& name) const;

  const World world_;
  const Calls calls_;
  Mutex mutex_;
  std::set<std::string> busy_ ABSL_GUARDED_BY(mutex_);  // callers
};

// The parts of a job with its own bytes, without its result: what goes with it.
// Checkpoints beyond kCheckpointsOfPage are one part.
std::vector<DiskPart> PartsOf(const JobRecord& job, const JobRemains& remains);
DiskPart OutputPart(const JobRecord& job, int64_t bytes);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_REMOVAL_DISK_KEEPER_H_
