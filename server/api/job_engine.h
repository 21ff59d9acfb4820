// What the API needs done by whoever runs jobs.  Reading goes to the job store;
// this is everything else.  server/jobs implements it; tests have a fake.
#ifndef ROUNDHOUSE_SERVER_API_JOB_ENGINE_H_
#define ROUNDHOUSE_SERVER_API_JOB_ENGINE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/priority.h"
#include "server/access/caller.h"
#include "server/dataset/dataset_inspector.h"
#include "server/devices/device_loans.h"
#include "server/explain/pool_snapshot.h"
#include "server/limits/sharing.h"
#include "server/observe/device_info.h"
#include "server/observe/trace.h"
#include "server/store/store.h"
#include "server/weights/export_task.h"

namespace roundhouse {

class Database;

struct SubmitRequest {
  std::string text;
  std::string file_name;   // Begins the messages about the text; never empty.
  std::string request_id;  // "": not idempotent.
  Caller caller;           // who asks, and whose the job is
  std::string project = kDefaultProject;
  // As NewJob::may_be_made.
  std::function<absl::Status(Database*, Priority, uint64_t host_bytes)>
      may_be_made =
          [](Database*, Priority, uint64_t) { return absl::OkStatus(); };
  // By paths in the text: names of what was uploaded for them.
  std::map<std::string, std::string> uploaded = {};
  std::optional<Priority> priority = {};  // in place of the text's
};

// v1::JobNeeds.
struct JobNeeds {
  int64_t host_base_bytes = 0;
  int64_t host_state_bytes = 0;
  int64_t host_buffer_bytes = 0;
  int64_t host_wanted_buffer_bytes = 0;
  int64_t host_table_bytes = 0;
  int64_t host_limit_bytes = 0;
  int backward_inputs = 0;
  int saved_inputs = 0;  // of them
  int64_t device_slot_bytes = 0;
  int64_t device_limit_bytes = 0;
  int64_t checkpoint_bytes = 0;
  int64_t checkpoint_count = 0;
  int64_t export_bytes = 0;
  int64_t disk_bytes = 0;
  int64_t disk_free_bytes = 0;
  std::string disk_path;
  int64_t parameters = 0;
  int64_t trainable_parameters = 0;
  int64_t steps = 0;  // 0: not known before the dataset is read
  std::optional<double> step_seconds;
  std::string measured_in;  // a job's full name; "": none
};

struct SubmitResult {
  JobRecord job;
  // What its file says that means nothing here, and the like.
  std::vector<std::string> warnings = {};
};

struct DryRunResult {
  JobRecord job;  // without an id
  JobNeeds needs;
  DatasetQuestion first_sequence;  // for DatasetInspector::Check
  std::vector<std::string> warnings;
  bool has_eval_prompts = false;  // which are not looked at
};

struct ServerInfo {
  std::string version;
  absl::Time start_time;
  int64_t host_memory_limit_bytes = 0;
  int64_t host_memory_used_bytes = 0;
  std::string metrics_address;  // "": none.
};

// Thread-safe; called from several threads of the API at once.  Statuses carry
// reason and field (server/spec/spec_error.h).
class JobEngine {
 public:
  virtual ~JobEngine() = default;

  // Checks and stores a job; returns when it is durable.  A known request_id
  // with the same text gives its job before anything is checked again
  // (JobStore::FindRequest).  kInvalidArgument, kUnimplemented,
  // kResourceExhausted.
  virtual absl::StatusOr<SubmitResult> Submit(const SubmitRequest& request) = 0;
  // The same checks; nothing is stored.
  virtual absl::StatusOr<DryRunResult> DryRun(const SubmitRequest& request) = 0;

  // The job after the first committed transition; what follows is seen by
  // watching.  kNotFound, kFailedPrecondition.  Cancelling a job that is being
  // cancelled, and so on, gives the job as it is.
  virtual absl::StatusOr<JobRecord> Cancel(const std::string& id) = 0;
  virtual absl::StatusOr<JobRecord> Pause(const std::string& id) = 0;
  // It keeps no memory, and is PAUSING until it is saved.
  virtual absl::StatusOr<JobRecord> PauseAndGiveBack(const std::string& id) = 0;
  virtual absl::StatusOr<JobRecord> Resume(const std::string& id) = 0;
  // The job ends as after its last step, after the step that runs.  Durable
  // when it returns, with the job still RUNNING; kFailedPrecondition in any
  // state but that and FINALIZING.
  virtual absl::StatusOr<JobRecord> Finish(const std::string& id) = 0;

  // From the next slot on, and in the queue at once.  Durable when it returns;
  // JobStore::SetPriority's errors.
  virtual absl::StatusOr<JobRecord> SetPriority(
      const std::string& id, const PriorityChange& change) = 0;

  // Begins to write a directory with an adapter or a model.  Returns at once;
  // the task has every error, and the directory when it is there.  An output
  // that is there is never replaced (kAlreadyExists).
  virtual std::shared_ptr<ExportTask> Export(const ExportRequest& request) = 0;

  // The directory of trained weights that a name means, as exports look it up.
  // kNotFound; kFailedPrecondition: the job has no output.  Blocks on the disk.
  virtual absl::StatusOr<std::string> FindOutput(const std::string& source,
                                                 const Caller& caller) = 0;

  // Begins to record the job's next whole steps.  Returns at once; the task has
  // every error, and the trace when it is there.
  // REQUIRES: steps is 1 to kMaxTracedSteps.
  virtual std::shared_ptr<TraceTask> TraceJob(const std::string& id,
                                              int64_t steps) = 0;

  // The next three return at once.
  // Which devices are lent or fenced (DeviceLoans::Stored) from now on.
  virtual void SetDeviceLoans(const DeviceLoanList& loans) = 0;
  // Starts the worker of a device that was given up.
  virtual void ReviveDevice(int device) = 0;
  // How users and projects share from now on.
  virtual void SetSharing(const Sharing& sharing) = 0;

  // What running jobs have, and jobs had, of what is limited; UNAVAILABLE.
  virtual absl::StatusOr<SharedUse> Used() = 0;
  // How things stand for the job.  kNotFound.
  virtual absl::StatusOr<PoolSnapshot> PoolFor(const std::string& id) = 0;

  // By index.
  virtual std::vector<DeviceInfo> Devices() = 0;
  virtual ServerInfo Server() = 0;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_JOB_ENGINE_H_
