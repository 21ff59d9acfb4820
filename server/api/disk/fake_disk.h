// A DiskEngine that a test answers for.
#ifndef ROUNDHOUSE_SERVER_API_DISK_FAKE_DISK_H_
#define ROUNDHOUSE_SERVER_API_DISK_FAKE_DISK_H_

#include <functional>

#include "absl/status/status.h"
#include "server/api/disk/disk_engine.h"

namespace roundhouse {

// Thread-safe; the answers are set before the server runs a call, and what has
// none is kUnimplemented.
class FakeDisk final : public DiskEngine {
 public:
  absl::StatusOr<DeletedJob> DeleteJob(
      const DeleteJobRequest& request) override {
    return Answer(delete_job, request);
  }
  absl::StatusOr<OldCheckpoints> ListOldCheckpoints(
      const OldCheckpointsQuery& query) override {
    return Answer(old_checkpoints, query);
  }
  absl::StatusOr<DeletedCheckpoints> DeleteCheckpoints(
      const DeleteCheckpointsRequest& request) override {
    return Answer(delete_checkpoints, request);
  }
  absl::StatusOr<DiskUsagePage> DiskUsage(
      const DiskUsageQuery& query) override {
    return Answer(usage, query);
  }
  absl::StatusOr<std::string> FindOutputOf(
      const std::string& project) override {
    return Answer(output_of, project);
  }

  template <typename Out, typename In>
  using Function = std::function<absl::StatusOr<Out>(const In&)>;
  Function<DeletedJob, DeleteJobRequest> delete_job;
  Function<OldCheckpoints, OldCheckpointsQuery> old_checkpoints;
  Function<DeletedCheckpoints, DeleteCheckpointsRequest> delete_checkpoints;
  Function<DiskUsagePage, DiskUsageQuery> usage;
  Function<std::string, std::string> output_of = [](const std::string&) {
    return "";
  };

 private:
  template <typename Out, typename In>
  static absl::StatusOr<Out> Answer(const Function<Out, In>& answer,
                                    const In& question) {
    if (answer == nullptr) return absl::UnimplementedError("no answer is set");
    return answer(question);
  }
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_DISK_FAKE_DISK_H_
