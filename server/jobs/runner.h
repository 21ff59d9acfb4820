// Runs one admitted job from loading to its end: weights into the arena, steps
// through the dispatcher, evaluations, checkpoints, export.
//
//   kLoading -> kStepping <-> (saves beside it) -> kFinalizing -> finished
//        |            |                                |
//        +------------+---- kStopping (pause, cancel, failure) -> finished
//
// The dispatcher decides what runs where; this class gives its actions buffers
// and words (commands.h), sends them, accepts results, and knows what a step
// means for the job.  Runs on the event loop's thread; the pool's events come
// through the engine.
#ifndef ROUNDHOUSE_SERVER_JOBS_RUNNER_H_
#define ROUNDHOUSE_SERVER_JOBS_RUNNER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/lr_schedule.h"
#include "base/model/directory.h"
#include "scheduler/dispatch/dispatcher.h"
#include "scheduler/jobs/lifecycle.h"
#include "scheduler/plan/cost_model.h"
#include "server/jobs/checkpoint.h"
#include "server/jobs/commands.h"
#include "server/jobs/dataset.h"
#include "server/jobs/file_table.h"
#include "server/jobs/round_buffers.h"
#include "server/jobs/spec.h"
#include "server/jobs/training_state.h"
#include "server/pool/event_loop.h"
#include "server/pool/host_arena.h"
#include "server/pool/worker_pool.h"

namespace roundhouse {

struct RunnerOptions {
  uint64_t job = 0;
  std::string directory;    // of the job; checkpoints lie in it
  std::string output_path;  // of the exported model
  ResolvedSpec spec;
  ModelDirectory model;
  const Dataset* train = nullptr;
  const Dataset* validation = nullptr;  // null: none
  uint64_t device_memory_bytes = 0;
};

// What a job needs of the host arena, in bytes, with this plan.
struct HostNeed {
  uint64_t state_bytes = 0;
  uint64_t buffer_bytes = 0;
  uint64_t table_bytes = 0;  // of the files worker, at load and save
  uint64_t total() const { return state_bytes + buffer_bytes + table_bytes; }
};

struct StepReport {
  int64_t step = 0;
  double loss = 0;
  double learning_rate = 0;
  std::optional<double> grad_norm;
  double epoch = 0;
  int64_t tokens = 0;  // targets of this step
  double seconds = 0;
};

struct JobOutcome {
  JobState state = JobState::kFailed;  // SUCCEEDED, PAUSED, CANCELLED, FAILED,
                                       // or QUEUED: memory was not there
  JobReason reason = JobReason::kNone;
  std::string message;
  std::string output_path;
};

class JobRunner {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void OnRunning(int64_t step, int64_t total_steps) = 0;
    virtual void OnStep(const StepReport& report) = 0;
    virtual void OnEvaluation(int64_t step, double loss) = 0;
    virtual void OnCheckpoint(int64_t step, const std::string& path,
                              uint64_t bytes) = 0;
    // For the job's log and events.
    virtual void OnNote(const std::string& text) = 0;
    virtual void OnFinalizing() = 0;
    virtual void OnSlot(DeviceId device, const wire::SlotDone& done) = 0;
    virtual void OnDispatchLatency(double seconds) = 0;
    // The last call; the runner holds no arena memory any more.
    virtual void OnFinished(const JobOutcome& outcome) = 0;
  };

  JobRunner(EventLoop& loop, HostArena& arena, WorkerPool& pool,
            RunnerOptions options, Listener* listener);
  ~JobRunner();

  // The plan of a job that has measured nothing yet.  RESOURCE_EXHAUSTED names
  // the layer that fits no device; INVALID_ARGUMENT a wrong `plan` field.
  static absl::StatusOr<Plan> InitialPlan(const ResolvedSpec& spec,
                                          const ModelConfig& model,
                                          int device_count,
                                          uint64_t device_memory_bytes);
  static HostNeed NeedOf(const ResolvedSpec& spec, const ModelConfig& model,
                         const Plan& plan, int64_t max_sequence_tokens);

  void Start();
  // Stops at the next moment that loses no finished step, saves, ends PAUSED.
  void Pause();
  // Ends CANCELLED; saves nothing.
  void Cancel();

  void OnWorkerUp(WorkerId worker);
  void OnMessage(WorkerId worker, const wire::Message& message);
  void OnWorkerDown(WorkerId worker);
  void OnDeviceLost(DeviceId device, const std::string& why);

  int64_t step() const { return completed_step_; }
  int64_t total_steps() const { return total_steps_; }
  bool stepping() const { return phase_ == Phase::kStepping; }

 private:
  enum class Phase { kLoading, kStepping, kFinalizing, kStopping, kFinished };
  struct OutSlot {
    DeviceId device{};
    uint64_t attempt = 0;
    RunSlotAction action;
    int64_t enabled_ns = 0;  // the event that made it possible
  };
  struct StepEntry {
    StepData data;
    // Results of fused and evaluation slots: round, micro-batch -> result.
    std::map<std::pair<int, uint32_t>, wire::MicroBatchResult> results;
    std::vector<double> unit_norms;  // squared
    int64_t begun_ns = 0;
    bool save_after = false;
  };
  struct PendingFileOp {
    std::unique_ptr<FileTable> table;
    wire::FileOp op;
    std::function<void(absl::Status)> done;
  };

  // A checkpoint to start from, verified in the background; empty: none.
  struct StartPoint {
    std::string path;
    CheckpointManifest manifest;
    std::vector<std::string> notes;  // what was found corrupt
  };

  // runner.cc: life
  absl::Status Allocate();
  void ConfigureWorker(WorkerId worker);
  void FindStart();
  static StartPoint BestCheckpoint(std::vector<std::string> candidates);
  void Load(const StartPoint& start);
  void RestoreHistory(const std::string& checkpoint);
  void OnLoaded(const absl::Status& status);
  void StartDispatcher();
  void FailWithoutDevices(const std::string& why);
  void Stop(JobOutcome outcome);
  void Fail(JobReason reason, const std::string& message);
  void FailWith(const absl::Status& status);
  void AfterQuiet();
  void Finish();

  // runner_steps.cc: steps
  void BeginNext();
  void BeginTrainStep();
  void BeginEvaluation();
  void BeginFinal();
  StepEntry MakeStep(bool train, const std::vector<MicroBatch>& batches);
  void Begin(StepEntry entry, bool clip);
  void HoldForNextSave();
  void CarryOut();
  void Carry(const RunSlotAction& action);
  void Carry(const WithdrawSlotAction& action);
  void Carry(const RunHostOpAction& action);
  void Carry(const StepReducedAction& action);
  void Carry(const StepDoneAction& action);
  void Carry(const QuietAction& action);
  void FillIfNeeded(StepEntry& entry, int round, int set);
  void OnSlotDone(WorkerId worker, uint64_t attempt,
                  const wire::SlotDone& done);
  void OnHostOpDone(const wire::HostOpDone& done);
  void OnFailed(WorkerId worker, uint64_t attempt, const wire::Failed& failed);
  void ObserveTimes(const OutSlot& out, const wire::SlotDone& done);
  struct LossSum {
    double mean = 0;  // nats per target token
    bool finite = true;
  };
  static LossSum SumLoss(const StepEntry& entry);
  void FailNonFinite(const StepEntry& entry, const char* what);
  void Report(StepEntry& entry, double loss, std::optional<double> norm);
  void AfterEvaluation(const StepEntry& entry);
  void MaybeReplan();

  // runner_files.cc: loads, checkpoints, export
  void RunFileOp(std::unique_ptr<FileTable> table,
                 std::function<void(absl::Status)> done);
  void SendFileOp();
  void Save(std::function<void(absl::Status)> done);
  void Export();
  absl::StatusOr<DirectoryPlan> PlanDirectory(const std::string& path,
                                              bool checkpoint) const;
  void WriteDirectory(std::shared_ptr<DirectoryPlan> plan, bool checkpoint,
                      std::function<void(absl::Status)> done);
  std::string ManifestText(const DirectoryPlan& plan,
                           const FileTable& table) const;
  std::string TrainerStateJson() const;
  void DropOldCheckpoints();

  const JobSpec& spec() const { return options_.spec.spec(); }

  EventLoop& loop_;
  HostArena& arena_;
  WorkerPool& pool_;
  const RunnerOptions options_;
  Listener* const listener_;
  Phase phase_ = Phase::kLoading;

  std::unique_ptr<TrainingState> state_;
  std::unique_ptr<RoundBuffers> buffers_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::unique_ptr<CostModel> costs_;
  Plan plan_;
  BatchOrder order_;
  LrSchedule schedule_;
  int64_t total_steps_ = 0;
  int64_t completed_step_ = 0;  // updates finished
  int64_t begun_step_ = 0;      // newest optimizer step begun
  int64_t saved_step_ = -1;
  int64_t tokens_trained_ = 0;
  int64_t tokens_saved_ = 0;  // of the checkpoint being written
  bool evaluated_before_ = false;
  bool final_evaluation_done_ = false;
  bool saving_ = false;
  bool abandoned_ = false;  // the dispatcher was told to stop
  bool quiet_ = false;      // nothing of the job is with a worker
  bool carrying_out_ = false;
  uint64_t next_pass_ = 1;
  uint64_t version_ = 0;  // of the weights that the next step reads
  std::map<uint64_t, StepEntry> steps_;  // by the dispatcher's step number
  std::map<SlotId, OutSlot> out_slots_;
  std::map<HostOpId, std::pair<uint64_t, RunHostOpAction>> out_host_ops_;
  std::set<SlotId> failed_slots_;
  std::optional<PendingFileOp> file_op_;
  uint64_t next_file_op_ = 1;
  std::optional<JobOutcome> outcome_;  // what Finish will say after stopping
  int64_t event_ns_ = 0;  // the worker's timestamp of the event in hand
  int64_t last_step_ns_ = 0;
  double loss_since_log_ = 0;
  int64_t steps_since_log_ = 0;
  std::vector<std::string> history_;  // entries of log_history, JSON objects
  std::thread background_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_JOBS_RUNNER_H_
