// The daemon's job engine: the commands of the API, and how jobs come from one
// state to the next.  The rest is composition: what each part does is said in
// its header.
//
//   submit    job_checker, admitted_jobs            (any thread)
//   validate  validations
//   queue     job_queue, job_opener
//   run       running_jobs, running_job, runner
//   delete    removal/disk_keeper, which asks whether a job is over
//   devices   devices/device_keeper: those that others have
//   tell      transitions, job_log, status_publisher
//   account   usage/usage_book
//
// Jobs start in the queue's order (job_queue.h); whoever has all that he may
// have is passed over.  The first of the others waits for its host memory and a
// place, and those behind it with it, but for one that makes it no later
// (explain/pool_model.h).  One that is being opened stays the first of its
// class: else two would take turns for ever.  With no job running it starts,
// and fails if its memory is not there.  kept_jobs.h has who gives way to whom.
//
// What the store must know goes through one door (transitions.h).  While the
// disk's reserve is given up no job is taken or started; reads are answered.
//
// JobEngine's methods are thread-safe, and may block; the rest runs on the
// event loop, where nothing opens a file.
#ifndef ROUNDHOUSE_SERVER_JOBS_ENGINE_H_
#define ROUNDHOUSE_SERVER_JOBS_ENGINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/admission/admission.h"
#include "server/admission/job_opener.h"
#include "server/admission/job_queue.h"
#include "server/admission/validations.h"
#include "server/api/job_engine.h"
#include "server/arena/host_arena.h"
#include "server/dataset/dataset_helper.h"
#include "server/devices/device_keeper.h"
#include "server/job/job_log.h"
#include "server/jobs/kept_jobs.h"
#include "server/jobs/pool_outlook.h"
#include "server/jobs/running_job.h"
#include "server/jobs/running_jobs.h"
#include "server/jobs/status_publisher.h"
#include "server/jobs/transitions.h"
#include "server/limits/sharing.h"
#include "server/loop/event_loop.h"
#include "server/loop/work_pool.h"
#include "server/observe/metrics.h"
#include "server/observe/status_board.h"
#include "server/observe/timing_log.h"
#include "server/planning/device_room.h"
#include "server/removal/disk_keeper.h"
#include "server/removal/readings.h"
#include "server/removal/remover.h"
#include "server/sample/sampler.h"
#include "server/store/disk_reserve.h"
#include "server/store/store.h"
#include "server/uploads/uploads.h"
#include "server/usage/usage_book.h"
#include "server/weights/exporter.h"
#include "server/workers/worker_pool.h"

namespace roundhouse {

struct EngineOptions {
  std::string state_dir;
  std::vector<std::string> data_roots;
  std::vector<OwnedRoot> owned_roots;
  std::string hf_cache;          // hub_cache.h; "": none
  HelperProgram dataset_helper;  // prepare.py, with others beside it
  DeviceRoom device;
  int device_threads = 1;
  double link_gbps = 0;  // of each device's link; 0: not known
  PeerGroup::Options peers;
  std::string metrics_address;
  int max_running_jobs = 16;
  StatusBoard* status = nullptr;     // null: nobody looks; outlives the engine
  TimingLog* samples = nullptr;      // test only; outlives the engine
  const Uploads* uploads = nullptr;  // null: there are none; outlives it
};

class Engine final : public JobEngine {
 public:
  // What it is given; all outlive it.
  struct World {
    EventLoop& loop;
    HostArena& arena;
    WorkerPool& pool;
    JobStore& store;
    ServerMetrics& metrics;
  };

  static absl::StatusOr<std::unique_ptr<Engine>> Create(
      const EngineOptions& options, const World& world);
  ~Engine() override;

  // Takes up the jobs of an earlier daemon, as soon as the store can say so.
  // Loop thread, before Run.
  absl::Status Recover();
  // Ends the running step, checkpoints, starts nothing more; then `drained`.
  void Drain(std::function<void()> drained);

  // WeightNames::resolver.  Any thread.
  PathResolver NamesOf(const Caller& caller, Role role) const {
    return admission_->names().resolver({caller, role});
  }
  // Opens what it names.  Any thread.
  const DataRoots& files() const { return admission_->roots(); }
  // Any thread.
  SampleEngine& sampler() { return *sampler_; }
  // Any thread but the loop's.
  DiskEngine& disk() { return disk_; }
  // Before WorkerPool::Start; then SetDeviceLoans.  Loop thread.
  DeviceKeeper& device_keeper() { return device_keeper_; }
  // For WorkerPool::Start.
  WorkerPool::Listener& listener() { return running_; }

  // JobEngine; any thread but the loop's.
  absl::StatusOr<SubmitResult> Submit(const SubmitRequest& request) override;
  absl::StatusOr<DryRunResult> DryRun(const SubmitRequest& request) override;
  absl::StatusOr<JobRecord> Cancel(const std::string& id) override;
  absl::StatusOr<JobRecord> Pause(const std::string& id) override;
  absl::StatusOr<JobRecord> PauseAndGiveBack(const std::string& id) override;
  absl::StatusOr<JobRecord> Resume(const std::string& id) override;
  absl::StatusOr<JobRecord> Finish(const std::string& id) override;
  absl::StatusOr<JobRecord> SetPriority(const std::string& id,
                                        const PriorityChange& change) override;
  std::shared_ptr<ExportTask> Export(const ExportRequest& request) override;
  void SetSharing(const Sharing& sharing) override;
  absl::StatusOr<SharedUse> Used() override;
  void SetDeviceLoans(const DeviceLoanList& loans) override;
  void ReviveDevice(int device) override;
  absl::StatusOr<PoolSnapshot> PoolFor(const std::string& id) override;
  std::vector<DeviceInfo> Devices() override;
  ServerInfo Server() override;
  absl::StatusOr<std::string> FindOutput(const std::string& source,
                                         const Caller& caller) override;
  std::shared_ptr<TraceTask> TraceJob(const std::string& id,
                                      int64_t steps) override;

 private:
  enum class Phase { kStarting, kServing, kDraining };

  Engine(const EngineOptions& options, const World& world,
         std::unique_ptr<Admission> admission);

  void MakeSampler();
  void MakeExporter();
  Validations::Calls ValidationCalls();
  JobOpener::Calls OpenerCalls();
  KeptJobs::World KeptWorld();
  KeptJobs::Calls KeptCalls();

  // Runs `change` on the loop and waits for its answer.
  absl::StatusOr<JobRecord> OnLoop(
      std::function<absl::StatusOr<JobRecord>()> change);

  // engine_states.cc
  void TakeUp(const JobRecord& job);
  void QueueAgain(const std::string& id);
  void ComeBack(const JobRecord& job);  // it gave way to others
  void GoOnWithRoom();
  void QueueWithRoom();
  bool QueueIfRoom(const std::string& id);
  absl::StatusOr<JobRecord> CancelNow(const std::string& id);
  enum class Memory { kKept, kGivenBack };
  absl::StatusOr<JobRecord> PauseNow(const std::string& id, Memory memory);
  // It is to be in this state at once where it does not run.
  void LeaveNow(const JobRecord& job, JobState state);
  absl::StatusOr<JobRecord> StayPaused(const JobRecord& job, Memory memory);
  absl::StatusOr<JobRecord> ResumeNow(const std::string& id);
  // The mark that it ends early is written beside the loop, then answered.
  using Answer = std::function<void(absl::StatusOr<JobRecord>)>;
  void FinishNow(const std::string& id, const Answer& answer);
  absl::StatusOr<JobRecord> CheckFinishable(const std::string& id) const;
  struct FinishMark {
    int64_t step = 0;
    bool again = false;  // the job was told to finish before
  };
  absl::StatusOr<JobRecord> OnFinishMarked(const JobRecord& job,
                                           const FinishMark& mark,
                                           const absl::Status& written);
  absl::StatusOr<JobRecord> SetPriorityNow(const std::string& id,
                                           const PriorityChange& change);
  absl::Status CheckTraceable(const std::string& id);
  void SetState(const std::string& id, JobState state, JobReason reason,
                const std::string& message, std::function<void()> stored = {});
  void SetCounts(const std::string& id, const DatasetCounts& counts);
  // One that could not be validated or started: PAUSED where the disk is at
  // fault, else FAILED.  `files` null: its log is opened beside the loop.
  void EndUntaken(const std::string& id, const absl::Status& status,
                  JobFiles* files = nullptr);
  void EndJob(const std::string& id, const TransitionInfo& why, JobState state,
              JobFiles* files);
  // In the job's log and events: a warning that a full disk keeps out of the
  // log is in the store.  `files` null: the log is opened beside the loop.
  void Warn(const JobRecord& job, const std::string& what,
            JobFiles* files = nullptr);
  // `over` once it is stored, or given up.
  void StoreWarning(
      const std::string& id, const std::string& what,
      const std::function<void()>& over = [] {});

  // engine_removal.cc
  DiskKeeper::Calls DiskCalls();
  // Nothing of a job that has ended goes on; kFailedPrecondition.
  absl::Status CheckOver(const std::string& id);
  void OnDeleted(const std::string& id);
  // What they read is not deleted meanwhile.
  absl::StatusOr<SampleSource> OpenSample(const SampleQuestion& question);
  absl::StatusOr<ExportPlan> PlanExport(const ExportRequest& request);

  // engine_start.cc
  void Enqueue(const std::string& id);
  // What the queue has of it.
  JobQueue::Queued QueuedNow(const std::string& id) const;
  void Forget(const std::string& id);
  void StartNext();
  void StartFromQueue();
  JobQueue::TurnOf Turns() const;
  // The first of the queue that its owner's limits let run; null: none.
  const JobQueue::Queued* NextQueued();
  // What running jobs have, and jobs had, of what is limited.
  SharedUse UsedNow() const;
  // Finds out what the job needs.  True: it is to be passed over.
  bool NeedsTooMuch(const JobQueue::Queued& queued);
  // Whether it can be opened to its end; it is being opened.
  bool GoesOnOpening(const std::string& id);
  uint64_t SharedBytes(const AdmittedJob& job);  // that others have there
  // Whether what the job needs of the arena beside that is there now.
  bool Fits(const AdmittedJob& job);
  // False: running jobs, a sample, or what is being freed are in the way of the
  // job's memory; StartNext comes again when one of them has ended, and samples
  // do end.
  bool MakeRoom(const JobQueue::Queued& queued);
  bool MakeRoomFor(const AdmittedJob& job, Priority priority);
  // REQUIRES: job.host.ok().
  uint64_t BytesOf(const AdmittedJob& job);
  void TakePlace(const JobQueue::Queued& queued);
  // Makes it LOADING and a running job, or says why not.
  absl::Status StartJob(const JobQueue::Queued& queued, OpenedJob opened);
  absl::Status LoadJob(OpenedJob& opened);
  RunningJob::World WorldOfJob();
  RunnerOptions OptionsOfJob(const OpenedJob& opened, const RunningJob& run);

  // engine_outlook.cc
  // With the first `most` of the queue, and the job `asked`.
  PoolSnapshot PoolNow(size_t most, const std::string& asked = "");
  const JobQueue::Queued* WhoGoesAhead(const JobQueue::Queued& first);

  // engine_reports.cc
  void OnChanged(const std::string& id, JobState state);
  void OnFinished(const std::string& id, const JobOutcome& outcome);
  void StoreEnd(const RunningJob& run, const JobOutcome& end);
  void UpdateCounts();
  void Tick();
  void FillReserve();
  void EndDrain();

  const EngineOptions options_;
  const World world_;
  DiskReserve reserve_;
  Transitions transitions_;
  const std::unique_ptr<Admission> admission_;
  Readings readings_;
  Remover remover_;
  DiskKeeper disk_;
  RunningJobs running_;
  DeviceKeeper device_keeper_;
  JobLog log_;
  Validations validations_;
  JobQueue queue_;
  Sharing sharing_;
  JobOpener opener_;
  StatusPublisher status_;
  UsageBook usage_;
  KeptJobs kept_;
  PoolOutlook outlook_;
  PoolOutlook::Ahead ahead_;  // of the first of the queue
  std::unique_ptr<Sampler> sampler_;
  Phase phase_ = Phase::kStarting;
  bool start_later_ = false;  // the first of the queue
  bool filling_ = false;      // the reserve
  std::function<void()> drained_;
  WorkPool sweeper_{1};  // directories of jobs that are over, or deleted
  Background background_;
  std::unique_ptr<Exporter> exporter_;  // last: its thread asks admission_
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_JOBS_ENGINE_H_
