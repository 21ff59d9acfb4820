// What the API needs done about the disk: what lies there and for whom, and
// deleting what jobs that have ended left.  server/removal implements it; tests
// have a fake.
#ifndef ROUNDHOUSE_SERVER_API_DISK_DISK_ENGINE_H_
#define ROUNDHOUSE_SERVER_API_DISK_DISK_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/access/caller.h"
#include "server/store/store_records.h"

namespace roundhouse {

// A call names so many at most.
inline constexpr size_t kMaxDeletedCheckpoints = 1000;

// The numbers are v1::DiskKind's.
enum class DiskKind {
  kCheckpoint = 1,
  kOutput = 2,
  kPreparedData = 3,
  kLogs = 4,
  kExport = 5,
  kUpload = 6,
  kPreparedCache = 7,
  kStore = 8,
};

// v1::DiskPart.
struct DiskPart {
  DiskKind kind = DiskKind::kLogs;
  std::string name;
  std::string owner;
  std::string project;
  int64_t bytes = 0;
  int64_t step = 0;
  bool partial = false;
};

struct DeleteJobRequest {
  JobRecord job;
  std::string who;  // for its watchers
  bool output = false;
  bool look_only = false;
};

struct DeletedJob {
  std::vector<DiskPart> parts;
  std::optional<DiskPart> kept_output;
  std::string kept_output_path;
  std::string left;  // why files are still there; "": they are not
};

// A checkpoint with the job that made it.
struct JobCheckpoint {
  std::string job_id;
  std::string owner;
  std::string project;
  int64_t step = 0;
  int64_t bytes = 0;
  absl::Time create_time;
};

struct OldCheckpointsQuery {
  int keep = 0;
  absl::Time before = absl::InfiniteFuture();  // made before
  Caller caller;                               // a member of the jobs' projects
  bool everybody = false;                      // else his own alone
  std::string project;                         // "": of all
  std::optional<int64_t> before_job;           // page
};

struct OldCheckpoints {
  std::vector<JobCheckpoint> checkpoints;
  std::optional<int64_t> next_before_job;
};

struct DeleteCheckpointsRequest {
  JobRecord job;
  std::string who;
  std::vector<int64_t> steps;
};

struct DeletedCheckpoints {
  std::vector<JobCheckpoint> checkpoints;
  std::string left;
};

struct DiskUsageQuery {
  Caller caller;
  std::string project;     // "": of all
  std::string page_token;  // "": the first page
};

struct DiskUsagePage {
  std::vector<DiskPart> parts;
  std::string next_page_token;
  int64_t disk_free_bytes = 0;
  int64_t disk_total_bytes = 0;
};

// Thread-safe.  Blocks on the disk: not for the event loop's thread.  Each is
// kAborted while another call of the same caller goes on, or as many of others
// as may at a time.
class DiskEngine {
 public:
  virtual ~DiskEngine() = default;

  // kFailedPrecondition: it has not ended, or somebody uses it; kAborted:
  // another call deletes of it now; kNotFound.
  virtual absl::StatusOr<DeletedJob> DeleteJob(
      const DeleteJobRequest& request) = 0;
  virtual absl::StatusOr<OldCheckpoints> ListOldCheckpoints(
      const OldCheckpointsQuery& query) = 0;
  // As DeleteJob; kNotFound: one of them is not there, and none goes.
  virtual absl::StatusOr<DeletedCheckpoints> DeleteCheckpoints(
      const DeleteCheckpointsRequest& request) = 0;
  // What the caller sees.  kInvalidArgument: the page token.
  virtual absl::StatusOr<DiskUsagePage> DiskUsage(
      const DiskUsageQuery& query) = 0;
  // The path of a result or an export that says it is the project's; "": none
  // does.  Never kAborted; kUnavailable: they can't be listed.
  virtual absl::StatusOr<std::string> FindOutputOf(
      const std::string& project) = 0;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_DISK_DISK_ENGINE_H_
