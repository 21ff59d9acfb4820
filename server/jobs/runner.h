// Runs one admitted job from loading to its end: weights into the arena, steps
// through the dispatcher, evaluations, checkpoints, export.
//
//   kLoading -> kStepping <-> (saves beside it) -> kFinalizing -> finished
//        |            |                                |
//        +------------+---- kStopping (pause, cancel, failure) -> finished
//
// When what it saves can't be written, it is *held* in that phase: with its
// memory, its plan and the steps that are begun, and no slot with a device.
//
// The dispatcher decides what runs where; this class gives its actions buffers
// and words (commands.h), sends them, accepts results, and knows what a step
// means for the job.  Runs on the event loop's thread; workers' comings and
// losses come through the engine.  What waits for the disk (verifying,
// finishing, removing checkpoints) runs on a thread of its own, one thing after
// the other.
#ifndef ROUNDHOUSE_SERVER_JOBS_RUNNER_H_
#define ROUNDHOUSE_SERVER_JOBS_RUNNER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "nlohmann/json_fwd.hpp"
#include "scheduler/jobs/lifecycle.h"
#include "scheduler/plan/cost_model.h"
#include "server/dataset/dataset.h"
#include "server/jobs/dispatch_loop.h"
#include "server/jobs/evaluation_samples.h"
#include "server/jobs/evaluations.h"
#include "server/jobs/job_needs.h"
#include "server/jobs/measured_rates.h"
#include "server/jobs/plan_search.h"
#include "server/jobs/round_buffers.h"
#include "server/jobs/runner_listener.h"
#include "server/jobs/runner_options.h"
#include "server/jobs/runner_work.h"
#include "server/jobs/start_point.h"
#include "server/jobs/step_updates.h"
#include "server/jobs/wide_sums.h"
#include "server/pool/event_loop.h"
#include "server/pool/host_arena.h"
#include "server/pool/replies.h"
#include "server/pool/work_pool.h"
#include "server/pool/worker_pool.h"
#include "server/spec/spec.h"
#include "server/weights/base_weights.h"
#include "server/weights/checkpoint.h"
#include "server/weights/training_state.h"

namespace roundhouse {

class JobRunner final : private DispatchLoop::Job, private ReplyHandler {
 public:
  using Listener = RunnerListener;

  // All references outlive it.
  JobRunner(EventLoop& loop, HostArena& arena, WorkerPool& pool,
            DispatchLoop& dispatch, RunnerOptions options, Listener* listener);
  ~JobRunner() override;

  void Start();
  // Stops at the next moment that loses no finished step, saves, ends PAUSED.
  void Pause();
  void Drain();  // likewise, but what can't be written is given up
  // Writes again what it is held for.  REQUIRES: held(), since OnHeld.
  void TryAgain();
  bool held() const { return held_.has_value() && !held_->trying; }
  // The first step that it can end after and drop no work: the newest that has
  // begun, one of this job at least.  Once FinishAfter was called, that one.
  int64_t FinishStep() const;
  // Ends after `step` as it would after its last one.  REQUIRES: FinishStep(),
  // or what it was in an earlier life of the job, before Start.
  void FinishAfter(int64_t step) { finish_step_ = step; }
  // Ends CANCELLED; saves nothing.
  void Cancel();

  // The pool's events, before the dispatch loop's functions of these names.
  void OnWorkerUp(WorkerId worker);
  void OnDeviceLost(DeviceId device, const std::string& why);

  int64_t step() const { return completed_step_; }
  int64_t total_steps() const { return total_steps_; }
  bool stepping() const { return phase_ == Phase::kStepping; }
  HostUse host_use() const;  // all 0 while the job holds no memory

 private:
  using Done = std::function<void(absl::Status)>;
  enum class Phase { kLoading, kStepping, kFinalizing, kStopping, kFinished };

  // runner.cc: life
  absl::Status Allocate();
  absl::Status TryAllocate();
  void NoteResources();
  void OnMemory(const absl::Status& ready);
  void ConfigureWorker(WorkerId worker);
  // Runs `work` off the loop's thread, after what was given before, then `done`
  // with its result on the loop's.
  void InBackground(std::function<absl::Status()> work, Done done);
  // A file operation or background work is going on; AfterQuiet comes when it
  // has ended.
  bool Busy() const { return file_op_.has_value() || background_count_ > 0; }

  // runner_start.cc: what the job starts from
  void FindStart();
  // Any thread, while the job loads.
  absl::StatusOr<std::vector<FilePart>> PartsOf(const std::string& path,
                                                int64_t step) const;
  void OnStartChosen(std::shared_ptr<const StartPoint> start);
  bool ReadsSources(const StartPoint& start) const;
  FirstWeights ChooseWeights(std::shared_ptr<const StartPoint> start);
  void Load(const FirstWeights& weights);
  void LoadBase(const FirstWeights& next);
  void OnBaseLoaded(const absl::Status& status);
  void LoadTrained(const FirstWeights& weights);
  void FailLoading(const absl::Status& status);
  // `done` may come at once.
  void RunParts(const FirstWeights& weights, Done done);
  void GoOnFrom(const StartPoint& start);
  void FindOlderStart(const StartPoint& bad, const absl::Status& why);
  void OnLoaded(const StartPoint& start, const absl::Status& status);
  void StartDispatcher();
  void FailWithoutDevices(const std::string& why);
  void Stop(JobOutcome outcome);
  void Fail(JobReason reason, const std::string& message);
  void AfterQuiet();
  void Finish();

  // runner_evaluation.cc: evaluations, and how the job ends
  int64_t EndStep() const;
  bool EvaluationDue() const;
  bool SaveDue() const;
  void BeginEvaluation();
  void AfterEvaluation(const StepEntry& entry);
  void BeginSamples(bool best);
  void AfterSamples(bool best,
                    const absl::StatusOr<EvaluationSamples::Found>& found);
  void EndEvaluation(bool best);
  void EvaluationsFrom(const nlohmann::json& state, const StartPoint& start);
  void BeginFinal();
  void EndWithBest();
  void LoadBest(int64_t step);
  void LoseBest(int64_t step, const absl::Status& why);
  void OnBestLoaded(const absl::Status& status);
  std::string FinalMessage() const;

  // runner_steps.cc: steps
  void BeginNext();
  void GoOn();
  void BeginSteps();
  void BeginTrainStep();
  StepEntry MakeStep(bool train, const std::vector<MicroBatch>& batches);
  void Begin(StepEntry entry, bool clip);
  void HoldForNextSave();
  // DispatchLoop::Job
  void Execute(const Action& action, const Enabler& by) override;
  void AfterActions() override { Publish(); }
  void OnPeersOver() override;
  WideSums::Job Now() { return {steps_, out_slots_, *state_, *buffers_}; }
  void CarryOut() { dispatch_.CarryOut(); }
  void CarryOut(const Enabler& by) { dispatch_.CarryOut(id(), by); }
  void SendSlot(const RunSlotAction& action, const Enabler& by);
  void Withdraw(const WithdrawSlotAction& action);
  void SendHostOp(const RunHostOpAction& action);
  void OnReduced(const StepReducedAction& action);
  void OnDone(const StepDoneAction& action);
  void OnQuiet();
  void FillIfNeeded(StepEntry& entry, int round, int set);

  // runner_answers.cc: what the workers say
  void OnReply(WorkerId worker, const wire::Message& reply) override;
  void OnLost(WorkerId worker, uint64_t attempt,
              const std::string& why) override;
  void OnSlotStarted(uint64_t attempt, const wire::SlotStarted& started);
  void OnWithdrawn(uint64_t attempt, SlotId id);
  void OnSlotDone(WorkerId worker, uint64_t attempt,
                  const wire::SlotDone& done);
  void OnHostOpDone(const wire::HostOpDone& done);
  void OnFailed(WorkerId worker, uint64_t attempt, const wire::Failed& failed);
  void OnHostFailed(uint64_t attempt, const wire::Failed& failed);
  void OnSlotFailed(WorkerId worker, uint64_t attempt,
                    const wire::Failed& failed);
  void OnHeldSums(WorkerId worker, uint64_t attempt, const wire::Body& body);
  void OnSumsDown(WorkerId worker, uint64_t attempt,
                  const wire::SumsDown& sums);
  OutSlot* FindOut(WorkerId worker, uint64_t attempt, SlotId id);
  void ObserveTimes(const OutSlot& out, const wire::SlotDone& done);
  void NoteRecovery(DeviceId device, int64_t started_ns);
  void NoteHostOp(StepEntry& entry, const RunHostOpAction& action,
                  const wire::HostOpDone& done);
  void FailNonFinite(const StepEntry& entry, const char* what);
  void Report(StepEntry& entry, double loss, std::optional<double> norm);
  // Listener and cost model, what was done: after the workers have commands.
  void Publish();
  // runner_plan.cc: the plan of later steps
  void ReviewPlan();
  void SearchPlan(const std::vector<double>& speeds);
  JobPlanQuestion QuestionOfNow(const std::vector<double>& speeds) const;
  void OnPlanFound(const FoundPlan& found);
  void AdoptPlan(const FoundPlan& found);
  // runner_files.cc: loads, checkpoints, export
  void RunFileOp(std::unique_ptr<FileTable> table, Done done);
  void OnFileOp(const absl::Status& status);
  void Save(Done done);
  void SaveAndGoOn();
  void Export();
  void ExportTo(const std::string& path);
  absl::StatusOr<DirectoryPlan> PlanDirectory(const std::string& path,
                                              bool checkpoint) const;
  void WriteDirectory(const DirectoryWrite& write);
  void WriteParts(const DirectoryWrite& write);
  void FinishParts(const DirectoryWrite& write);
  void AbandonParts(const DirectoryWrite& write, const absl::Status& why);
  CheckpointManifest ManifestOf(const DirectoryPlan& plan,
                                const FileTable& table) const;
  std::string TrainerStateJson() const;
  void OnSaved(int64_t step);
  void DropOldCheckpoints();
  // runner_hold.cc: what can't be written
  void OnWritten(const DirectoryWrite& write, const absl::Status& status);
  bool MayHold(const DirectoryWrite& write, const absl::Status& status) const;
  void Hold(const DirectoryWrite& write, const absl::Status& status);
  void GiveUpHeld();
  JobOutcome OutcomeOf(const absl::Status& status) const;

  const JobSpec& spec() const { return options_.spec.spec(); }
  JobId id() const { return static_cast<JobId>(options_.job); }
  Dispatcher& dispatcher() { return dispatch_.dispatcher(); }
  bool Idle() const { return dispatch_.dispatcher().Idle(id()); }

  EventLoop& loop_;
  HostArena& arena_;
  WorkerPool& pool_;
  DispatchLoop& dispatch_;
  const RunnerOptions options_;
  Listener* const listener_;
  Phase phase_ = Phase::kLoading;
  std::vector<std::string> tokenizer_files_;  // names of the job's own
  std::unique_ptr<TrainingState> state_;
  std::string base_key_;
  BaseWeights::Ticket base_ticket_ = 0;  // of state_->base(), while loading
  std::unique_ptr<RoundBuffers> buffers_;
  bool dispatching_ = false;  // the dispatcher has the job
  std::unique_ptr<CostModel> costs_;
  MeasuredRates rates_;
  Plan plan_;
  PlanReview review_;
  bool searching_ = false;                       // for a plan
  std::optional<FoundPlan> found_plan_;          // for the next step
  std::unique_ptr<RoundBuffers> found_buffers_;  // of the plan that was found
  ArenaPages::Waiter memory_wait_ = 0;
  uint64_t table_bytes_ = 0;  // taken at loads and saves
  BatchOrder order_;
  int64_t total_steps_ = 0;
  StepUpdates updates_;
  int64_t completed_step_ = 0;  // steps finished
  int64_t base_step_ = 0;       // of another job's checkpoint
  int64_t begun_step_ = 0;      // newest optimizer step begun
  int64_t reduced_step_ = 0;    // newest one whose gradients are all there
  std::optional<int64_t> finish_step_;
  int64_t saved_step_ = -1;
  int64_t tokens_trained_ = 0;
  BeingSaved saved_;
  Evaluations evaluations_;
  EvaluationSamples samples_;             // no step goes on while it runs
  std::optional<int64_t> best_in_arena_;  // step, in the last one's place
  std::string lost_best_;  // why the best model is not the result; "": it is
  bool saving_ = false;
  std::optional<HeldWrite> held_;
  bool draining_ = false;
  bool abandoned_ = false;  // the dispatcher was told to stop
  bool quiet_ = false;      // nothing of the job is with a worker
  std::vector<std::pair<OutSlot, wire::SlotDone>> untold_slots_;
  std::vector<StepReport> untold_steps_;
  uint64_t next_pass_ = 1;
  uint64_t version_ = 0;           // of the weights that the newest step leaves
  uint64_t previous_version_ = 0;  // of those that the one before it does
  std::map<uint64_t, StepEntry> steps_;  // by the dispatcher's step number
  std::map<SlotId, OutSlot> out_slots_;
  WideSums wide_sums_;
  std::map<HostOpId, OutHostOp> out_host_ops_;
  std::map<DeviceId, int64_t> down_since_ns_;  // workers that died with slots
  std::set<SlotId> failed_slots_;
  std::optional<PendingFileOp> file_op_;
  std::optional<JobOutcome> outcome_;  // what Finish will say after stopping
  int64_t last_step_ns_ = 0;
  LossSinceLog since_log_;
  std::vector<std::string> history_;  // entries of log_history, JSON objects
  int background_count_ = 0;          // given to background_, not yet done
  WorkPool background_{1, kMaxBackgroundWork};  // dies first
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_JOBS_RUNNER_H_
