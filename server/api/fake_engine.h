// A JobEngine over a real job store: it validates the job file's text, stores
// the job and moves it by commands alone.  For tests of the API.
#ifndef ROUNDHOUSE_SERVER_API_FAKE_ENGINE_H_
#define ROUNDHOUSE_SERVER_API_FAKE_ENGINE_H_

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "server/api/job_engine.h"
#include "server/store/store.h"

namespace roundhouse {

// Thread-safe.
class FakeEngine final : public JobEngine {
 public:
  explicit FakeEngine(JobStore* store) : store_(store) {}

  absl::StatusOr<SubmitResult> Submit(const SubmitRequest& request) override;
  absl::StatusOr<DryRunResult> DryRun(const SubmitRequest& request) override;
  absl::StatusOr<JobRecord> Cancel(const std::string& id) override;
  absl::StatusOr<JobRecord> Pause(const std::string& id) override;
  absl::StatusOr<JobRecord> PauseAndGiveBack(const std::string& id) override {
    return Pause(id);
  }
  absl::StatusOr<JobRecord> Resume(const std::string& id) override;
  absl::StatusOr<JobRecord> Finish(const std::string& id) override;
  absl::StatusOr<JobRecord> SetPriority(const std::string& id,
                                        const PriorityChange& change) override;
  // The test moves the task on.
  std::shared_ptr<ExportTask> Export(const ExportRequest& request) override;
  // Answers what `outputs` has.
  absl::StatusOr<std::string> FindOutput(const std::string& source,
                                         const Caller& caller) override;
  std::shared_ptr<TraceTask> TraceJob(const std::string& id,
                                      int64_t steps) override;
  void SetSharing(const Sharing& sharing) override;
  // Answers `used`.
  absl::StatusOr<SharedUse> Used() override { return used; }
  void SetDeviceLoans(const DeviceLoanList& loans) override;
  void ReviveDevice(int device) override;
  // The job waits, the second of two, for memory that job-98 of project
  // "default" has.
  absl::StatusOr<PoolSnapshot> PoolFor(const std::string& id) override;
  // Two; the second one is lost until it is revived.
  std::vector<DeviceInfo> Devices() override;
  ServerInfo Server() override;

  // By name; before calls.
  std::map<std::string, std::string> outputs;
  SharedUse used;

  // As set last.
  Sharing sharing() const;
  int submits() const { return submits_; }
  // What the last submit said.
  std::string principal() const;
  // What was asked and given last.  The tasks are waited for.
  ExportRequest export_request() const;
  std::shared_ptr<ExportTask> AwaitExportTask();
  // "job-7 3"; "" before.
  std::string trace_request() const;
  std::shared_ptr<TraceTask> AwaitTraceTask();

 private:
  JobStore* const store_;
  std::atomic<int> submits_ = 0;
  mutable Mutex mutex_;
  CondVar asked_;
  std::string principal_ ABSL_GUARDED_BY(mutex_);
  DeviceLoanList device_loans_ ABSL_GUARDED_BY(mutex_);
  bool revived_ ABSL_GUARDED_BY(mutex_) = false;
  Sharing sharing_ ABSL_GUARDED_BY(mutex_);
  ExportRequest export_request_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<ExportTask> export_task_ ABSL_GUARDED_BY(mutex_);
  std::string trace_request_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<TraceTask> trace_task_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_FAKE_ENGINE_H_
