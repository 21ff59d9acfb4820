// The daemon's job engine: takes jobs in, has their data prepared, runs them,
// several at once, and keeps the store, logs and metrics told.
//
// Jobs start first come first served: the first of the queue waits until fewer
// than max_running_jobs run and what it needs of host memory is free, and those
// behind it wait with it.  With no job running it starts, and fails if its
// memory is not there.  Several are validated at once (engine_validation.cc).
// One that is PAUSED with its memory leaves its place to another.
//
// What the store must know goes through one door (transitions.h).  While the
// disk's reserve is given up no job is taken or started; reads are answered.
//
// Submit checks on the caller's thread; everything that decides runs on the
// event loop's thread.  JobEngine's methods are thread-safe; the rest runs on
// the loop.
#ifndef ROUNDHOUSE_SERVER_JOBS_ENGINE_H_
#define ROUNDHOUSE_SERVER_JOBS_ENGINE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/model/directory.h"
#include "server/api/engine.h"
#include "server/dataset/dataset.h"
#include "server/dataset/given_files.h"
#include "server/dataset/helper_lanes.h"
#include "server/dataset/helper_limits.h"
#include "server/dataset/prepared_data.h"
#include "server/dataset/preparer.h"
#include "server/jobs/admitted_jobs.h"
#include "server/jobs/device_reports.h"
#include "server/jobs/device_room.h"
#include "server/jobs/disk_reserve.h"
#include "server/jobs/dispatch_loop.h"
#include "server/jobs/export_names.h"
#include "server/jobs/job_checker.h"
#include "server/jobs/job_fit.h"
#include "server/jobs/job_paths.h"
#include "server/jobs/running_job.h"
#include "server/jobs/source_files.h"
#include "server/jobs/transitions.h"
#include "server/jobs/validation_order.h"
#include "server/jobs/weight_names.h"
#include "server/observe/metrics.h"
#include "server/observe/sample_log.h"
#include "server/observe/status_board.h"
#include "server/observe/trace_recorder.h"
#include "server/pool/event_loop.h"
#include "server/pool/files_line.h"
#include "server/pool/host_arena.h"
#include "server/pool/work_pool.h"
#include "server/pool/worker_pool.h"
#include "server/sample/prompt_run.h"
#include "server/sample/sampler.h"
#include "server/spec/paths.h"
#include "server/spec/spec.h"
#include "server/store/store.h"
#include "server/weights/adapter_files.h"
#include "server/weights/base_weights.h"
#include "server/weights/exporter.h"

namespace roundhouse {

struct EngineOptions {
  std::string state_dir;
  std::vector<std::string> data_roots;
  std::string hf_cache;  // hub_cache.h; "": none
  std::string python;
  std::string prepare_script;
  int dataset_processes = 1;  // that tokenise each dataset
  DeviceRoom device;
  int device_threads = 1;
  double link_gbps = 0;  // of each device's link; 0: not known
  PeerGroup::Options peers;
  std::string metrics_address;
  int max_running_jobs = 2;
  StatusBoard* status = nullptr;  // null: nobody looks; outlives the engine
  SampleLog* samples = nullptr;   // test only; outlives the engine
};

class Engine final : public JobEngine, public WorkerPool::Listener {
 public:
  // All references outlive the engine.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(
      const EngineOptions& options, EventLoop& loop, HostArena& arena,
      WorkerPool& pool, JobStore& store, ServerMetrics& metrics);
  ~Engine() override;

  // Takes up the jobs of an earlier daemon, as soon as the store can say so.
  // Loop thread, before Run.
  absl::Status Recover();
  // Ends the running step, checkpoints, starts nothing more; then `drained`.
  void Drain(std::function<void()> drained);

  // WeightNames::ResolvePath.  Any thread.
  PathResolver resolver() const { return names_->resolver(); }

  // Opens what ResolvePath names.  Any thread.
  const FileOpener& files() const { return *roots_; }

  // Any thread.
  SampleEngine& sampler() { return *sampler_; }

  // JobEngine; any thread but the loop's.
  absl::StatusOr<SubmitResult> Submit(const SubmitRequest& request) override;
  absl::StatusOr<DryRunResult> DryRun(const SubmitRequest& request) override;
  absl::StatusOr<JobRecord> Cancel(const std::string& id) override;
  absl::StatusOr<JobRecord> Pause(const std::string& id) override;
  absl::StatusOr<JobRecord> Resume(const std::string& id) override;
  absl::StatusOr<JobRecord> Finish(const std::string& id) override;
  std::shared_ptr<ExportTask> Export(const ExportRequest& request) override;
  std::vector<DeviceInfo> Devices() override;
  ServerInfo Server() override;
  std::shared_ptr<TraceTask> TraceJob(const std::string& id,
                                      int64_t steps) override;

 private:
  struct Queued {
    std::string id;
    absl::Time since;
  };

  Engine(const EngineOptions& options, EventLoop& loop, HostArena& arena,
         WorkerPool& pool, JobStore& store, ServerMetrics& metrics);

  // WorkerPool::Listener
  void OnWorkerUp(WorkerId worker) override;
  void OnMessage(WorkerId worker, const wire::Message& message) override;
  void OnWorkerDown(WorkerId worker, const std::string& why) override;
  void OnStartFailed(WorkerId worker, const std::string& why) override;
  void OnDeviceLost(DeviceId device, const std::string& why) override;

  // The job's, while it runs; null: it does not.
  RunningJob* FindRunning(const std::string& id);
  // Each job that runs; `tell` may end some.
  void ForEachRunning(const std::function<void(RunningJob&)>& tell);
  void OnChanged(const std::string& id, JobState state);
  void OnFinished(const std::string& id, const JobOutcome& outcome);
  void StoreEnd(const RunningJob& run, const JobOutcome& end);

  // engine_memory.cc.
  // Whether what the job needs of the arena is there now.
  absl::StatusOr<bool> Fits(const std::string& id) const;
  // False: running jobs, a sample, or what is being freed are in the way of the
  // job's memory; StartNext comes again when one of them has ended, and samples
  // do end.
  bool MakeRoom(const std::string& id);
  // What running jobs take when they load and save.
  uint64_t TableBytes() const;

  // engine_prompts.cc: eval_prompts of a job that is validated or started.
  TextHelperOptions TextOptions(const JobSpec& spec, bool chat_template,
                                GivenFiles given) const;
  // The datasets are prepared, or not.
  void OnPrepared(const std::string& id, const absl::Status& status);
  // False: there is none.
  absl::StatusOr<bool> StartPromptCheck(const std::string& id);
  void OnPromptsChecked(const std::string& id, const absl::Status& status);

  // Runs `change` on the loop and waits for its answer.
  absl::StatusOr<JobRecord> OnLoop(
      std::function<absl::StatusOr<JobRecord>()> change);
  // engine_states.cc
  void TakeUp(const JobRecord& job);
  void QueueAgain(const std::string& id);
  absl::StatusOr<JobRecord> CancelNow(const std::string& id);
  absl::StatusOr<JobRecord> PauseNow(const std::string& id);
  absl::StatusOr<JobRecord> ResumeNow(const std::string& id);
  absl::StatusOr<JobRecord> FinishNow(const std::string& id);
  void SetState(const std::string& id, JobState state, JobReason reason,
                const std::string& message, std::function<void()> stored = {});
  void FailJob(const std::string& id, JobReason reason,
               const std::string& message);
  // One that could not be validated or started: PAUSED where the disk is at
  // fault, else FAILED.
  void EndUntaken(const std::string& id, const absl::Status& status);
  // FAILED or PAUSED; without a runner.
  void EndJob(const std::string& id, JobState state, JobReason reason,
              const std::string& message);
  absl::Status CheckTraceable(const std::string& id);

  // engine_held.cc
  bool HasPlace() const;
  void OnHeld(const std::string& id, const HeldReport& report);
  // Ask's errors; kFailedPrecondition: no place is free.  REQUIRES: run.held().
  absl::StatusOr<JobRecord> GoOn(RunningJob& run);
  void GoOnWithRoom();
  void GoOnIfRoom(RunningJob& run);
  // Queues those that were PAUSED for want of room before they ran.
  void QueueWithRoom();

  // engine_data.cc: what lies in the jobs' directories.  Specs are resolved.
  PreparerOptions OptionsOfData(const JobRecord& job,
                                const JobSpec& spec) const;
  absl::StatusOr<std::vector<GivenFile>> FilesOfData(const std::string& id,
                                                     const JobSpec& spec) const;
  absl::Status CheckSources(const JobRecord& job,
                            const AdmittedJob& admitted) const;
  // How its prepared data are; none: being verified, StartNext comes again
  // then.
  std::optional<absl::Status> CheckData(const std::string& id);
  void OnDataChecked(const std::string& id,
                     const PreparedDataCheck::Result& result);
  void ForgetData(const std::string& id);
  // What an earlier life of the job left; a damaged mark is told and passed
  // over.
  std::optional<int64_t> FinishStepOf(const JobRecord& job);
  void RemoveLeftovers();  // of saves that were cut short; before anything runs

  void Enqueue(const std::string& id);
  void Forget(const std::string& id);
  void StartNext();
  struct Validation {  // engine_validation.cc
    std::unique_ptr<Preparer> preparer;
    std::unique_ptr<PromptRun> prompt_check;
  };
  void AddToValidate(const std::string& id);
  bool MayTakeUp();  // else StartNext comes again
  bool HasDescriptors();
  void StartValidations();
  bool StartValidation(const std::string& id);  // false: there is nothing to
  void OnValidated(const std::string& id, const absl::Status& status);
  void QueueThoseReady();
  void ForgetValidation(const std::string& id);
  // Of the prepared splits; says what there is to warn of.
  absl::StatusOr<DatasetCounts> TakeDatasets(const JobRecord& job);
  void WarnOfData(const JobRecord& job, const std::string& file,
                  const Dataset& data);
  // In the job's log and events.
  void Warn(const JobRecord& job, const std::string& what);
  // Makes it LOADING and a running job, or says why not.
  absl::Status StartJob(const Queued& queued);
  // What a job lacks that was PAUSED before its data were ready.
  absl::Status TakeMissingCounts(const JobRecord& job);
  absl::Status LoadJob(const JobRecord& job, std::unique_ptr<JobFiles> files);
  // Why a job could not be validated or started; DATA_LOSS is of the disk.
  static JobReason ReasonOf(const absl::Status& status);
  void UpdateCounts();
  void UpdateBusy();
  void OnDeviceMessage(DeviceId device, const wire::Message& message);
  void Tick();
  void PublishArena();
  void PublishDisk();

  // engine_status.cc: the status page
  int ChooseColor(const std::string& id) const;
  // `color`: -1 of a job that did not run.  Ignored unless PAUSED or final.
  void ShowEnded(const std::string& id, int color, JobState state,
                 JobReason reason);
  void PublishStatus();

  const EngineOptions options_;
  EventLoop& loop_;
  HostArena& arena_;
  WorkerPool& pool_;
  JobStore& store_;
  DiskReserve reserve_;
  ServerMetrics& metrics_;
  Transitions transitions_;
  const JobPaths paths_;
  const JobFit fit_;
  std::unique_ptr<DataRoots> roots_;  // own jobs and outputs last
  std::unique_ptr<WeightNames> names_;
  std::unique_ptr<JobChecker> checker_;
  std::unique_ptr<AdmittedJobs> admitted_;
  std::unique_ptr<ExportNames> export_names_;
  const absl::Time start_time_ = absl::Now();

  HelperLanes validation_lanes_{{.short_running = kShortValidations,
                                 .long_running = kLongValidations,
                                 .running_each = kValidationsEach}};
  ValidationOrder validation_order_{kValidationOrderLimit};
  std::map<std::string, Validation> validations_;  // that run, by id
  EventLoop::TimerId order_timer_ = 0;
  EventLoop::TimerId shortage_timer_ = 0;
  bool told_of_shortage_ = false;
  std::deque<Queued> queue_;
  std::unique_ptr<PreparedDataCheck> data_check_;  // of queue_'s first
  std::string data_check_id_;                      // "": of none
  std::optional<absl::Status> data_status_;        // what it found
  BaseCache bases_;                                // outlives running_
  FilesLine files_line_;                           // so does this
  DispatchLoop dispatch_;
  DeviceReports devices_;
  TraceRecorder recorder_{devices_.ledgers()};
  std::unique_ptr<Sampler> sampler_;
  std::map<std::string, std::shared_ptr<RunningJob>> running_;  // by id
  std::deque<StatusEnded> ended_;  // the newest last
  bool taken_up_ = false;          // what an earlier daemon left
  bool start_later_ = false;       // the first of the queue
  // PAUSED for want of room before they ran, and when each is tried again.
  struct Untaken {
    absl::Time due;  // of the next try
    int tries = 0;
  };
  std::map<std::string, Untaken> without_room_;
  bool draining_ = false;
  std::function<void()> drained_;
  WorkPool sweeper_{1};  // directories of jobs that are over

  std::atomic<uint64_t> arena_used_bytes_{0};  // as of the last tick
  std::unique_ptr<Exporter> exporter_;  // last: its thread calls the engine
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_JOBS_ENGINE_H_
