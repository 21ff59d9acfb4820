// Runs one admitted job from loading to its end: the phases of its life, and
// what follows what.  Its parts do the work, each knowing nothing of the
// runner:
//
//   JobPhase         where it is, and how it ends     (job_phase.h)
//   JobMemory        training state and buffers       (job_memory.h)
//   WeightsLoader    weights into the arena           (weights_loader.h)
//   StepMaker        what a step is made of           (step_maker.h)
//   StepBook         steps and what workers answer    (step_book.h)
//   PlanAdviser      the plan of later steps          (plan_adviser.h)
//   EvaluationCycle  losses and samples between steps (evaluation_cycle.h)
//   BestModel        which model is the result        (best_model.h)
//   JobHistory       what steps came to               (job_history.h)
//   JobSaver, DirectoryWriter   checkpoints and output, and what is held
//
// When what it saves can't be written, it is *held* where it is: with its
// memory, its plan and the steps that are begun, and no slot with a device.  A
// job that *rests* is the same, for as long as its user likes.
//
// The dispatcher decides what runs where.  Runs on the event loop's thread;
// workers' comings and losses come through the engine.  What waits for the disk
// runs on a thread of its own, one thing after the other.
#ifndef ROUNDHOUSE_SERVER_RUN_RUNNER_H_
#define ROUNDHOUSE_SERVER_RUN_RUNNER_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/job_state.h"
#include "server/arena/host_arena.h"
#include "server/job/job_memory.h"
#include "server/job/runner_options.h"
#include "server/job/storage_reason.h"
#include "server/loop/background.h"
#include "server/loop/event_loop.h"
#include "server/run/best_model.h"
#include "server/run/evaluation_cycle.h"
#include "server/run/job_events.h"
#include "server/run/job_history.h"
#include "server/run/job_phase.h"
#include "server/run/job_saver.h"
#include "server/run/plan_adviser.h"
#include "server/run/start_point.h"
#include "server/run/weights_loader.h"
#include "server/steps/dispatch_loop.h"
#include "server/steps/step_book.h"
#include "server/steps/step_entry.h"
#include "server/steps/step_maker.h"
#include "server/steps/step_marks.h"
#include "server/steps/step_telemetry.h"
#include "server/steps/step_updates.h"
#include "server/weights/directory_writer.h"
#include "server/weights/file_operation.h"
#include "server/workers/worker_pool.h"

namespace roundhouse {

class JobRunner final : private StepBook::Owner,
                        private DirectoryWriter::Owner {
 public:
  // All outlive it.
  struct Surroundings {
    EventLoop& loop;
    HostArena& arena;
    WorkerPool& pool;
    DispatchLoop& dispatch;
  };

  // `events` and `telemetry` outlive it.
  JobRunner(const Surroundings& around, RunnerOptions options,
            JobEvents& events, StepTelemetry& telemetry);
  ~JobRunner() override = default;

  void Start();
  // Stops at the next moment that loses no finished step, saves, ends PAUSED.
  void Pause();
  // Whether its steps go on, so that it may rest.
  bool MayRest() const {
    return phase_.stepping() && !resting_ && !evaluations_.sampling();
  }
  // Keeps all that it has, and no slot with a device, until EndRest, Pause,
  // Drain or Cancel; what the host worker and a save have begun goes on.
  // REQUIRES: MayRest().
  void Rest();
  // Goes on where it was.  REQUIRES: resting().
  void EndRest();
  bool resting() const { return resting_; }
  // What becomes of the step that it is in when it is paused now: one that
  // updates weights ends, others are made again.  REQUIRES: stepping().
  bool EndsItsStep() const {
    return !book_.idle() && around_.dispatch.dispatcher().Updating(id());
  }
  // The newest checkpoint; 0: none.
  int64_t saved_step() const {
    return std::max<int64_t>(saver_.saved_step(), 0);
  }
  // Stops as Pause does, but gives up what can't be written.
  void Drain();
  // Writes again what it is held for.  REQUIRES: held(), since OnHeld.
  void TryAgain() { saver_.TryAgain(); }
  bool held() const { return writer_.waiting(); }
  // The first step that it can end after and drop no work: the newest that has
  // begun, one of this job at least.  Once FinishAfter was called, that one.
  int64_t FinishStep() const { return marks_.first_end(); }
  // Ends after `step` as it would after its last one.  REQUIRES: FinishStep(),
  // or what it was in an earlier life of the job, before Start.
  void FinishAfter(int64_t step) { marks_.finish = step; }
  // Ends after its last step after all.  REQUIRES: stepping().
  void ForgetFinish() { marks_.finish.reset(); }
  // FinishAfter was called.
  bool finishing() const { return marks_.finish.has_value(); }
  // From its next slot on.
  void SetPriority(Priority priority);
  // Ends CANCELLED; saves nothing.
  void Cancel();

  // The pool's events, before the dispatch loop's functions of these names.
  void OnWorkerUp(WorkerId worker);
  void OnDeviceLost(DeviceId device, const std::string& why);

  int64_t step() const { return marks_.completed; }
  int64_t total_steps() const { return marks_.total; }
  bool stepping() const { return phase_.stepping(); }
  // All 0 while the job holds no memory.
  HostUse host_use() const { return memory_.use(); }
  // JobMemory's.
  const std::string& base_key() const { return memory_.base_key(); }

 private:
  using Done = std::function<void(absl::Status)>;

  // runner.cc: life, and stopping
  void OnMemory(const absl::Status& ready);
  // A file operation or background work is going on; AfterQuiet comes when it
  // has ended.
  bool Busy() const { return operation_.running() || background_.busy(); }
  void FailWithoutDevices(const std::string& why);
  void Stop(JobOutcome outcome);
  void Fail(JobReason reason, const std::string& message);
  void AfterQuiet();
  void Finish();
  JobOutcome OutcomeOf(const absl::Status& status) const;

  // runner_start.cc: what the job starts from
  void FindStart();
  void OnStartChosen(std::shared_ptr<const StartPoint> start);
  void BeginFrom(std::shared_ptr<const StartPoint> start);
  void Load(std::shared_ptr<const StartPoint> start);
  void OnBaseFailed(const absl::Status& status);
  void FailLoading(const absl::Status& status);
  void GoOnFrom(const StartPoint& start);
  void FindOlderStart(const StartPoint& bad, const absl::Status& why);
  void OnLoaded(const StartPoint& start, const absl::Status& status);
  void OnFilesKept(const RunningReport& report);
  void StartSteps();

  // runner_steps.cc: steps and evaluations
  void BeginNext();
  void GoOn();
  void BeginSteps();
  void BeginTrainStep();
  void BeginEvaluation();
  void Begin(StepEntry entry);
  void HoldForNextSave();
  bool SaveDue() const;
  void EndEvaluation(EvaluationCycle::Loss loss);
  void FailNonFinite(const StepEntry& entry, const std::string& what);
  void Report(const StepEntry& entry, double loss, std::optional<double> norm);
  // StepBook::Owner
  void OnStepReduced(uint64_t number, StepEntry& entry) override;
  void OnStepDone(const StepEntry& entry) override;
  void OnQuiet() override;
  void OnLossNotFinite(const StepEntry& entry) override;
  void OnWorkerFailed(JobReason reason, const std::string& text) override;
  void OnStep(const StepReport& report) override { events_.OnStep(report); }

  // runner_saves.cc: saves, the end, and what can't be written
  JobSaver::Snapshot SnapshotOfNow() const;
  void Save(Done done);
  void SaveAndGoOn();
  void BeginFinal();
  void OnBestLoaded(const absl::Status& status);
  void Export(const std::string& path);
  void OnExported(const std::string& path, const absl::Status& status);
  std::string FinalMessage() const;
  void GiveUpHeld();
  // DirectoryWriter::Owner
  bool Holds(const DirectoryPlan& plan,
             const absl::Status& status) const override;
  void OnHeld(const DirectoryPlan& plan, const absl::Status& status,
              uint64_t need_bytes) override;
  void OnUnheld() override;
  void OnResumed() override;

  EvaluationCycle::Calls EvaluationCalls();
  BestModel::Calls BestModelCalls();

  const JobSpec& spec() const { return options_.spec.spec(); }
  JobId id() const { return static_cast<JobId>(options_.job); }
  Dispatcher& dispatcher() { return around_.dispatch.dispatcher(); }
  void CarryOut() { around_.dispatch.CarryOut(); }

  const Surroundings around_;
  const RunnerOptions options_;
  JobEvents& events_;
  JobPhase phase_;
  StepMarks marks_;
  JobMemory memory_;
  StepMaker maker_;
  StepUpdates updates_;
  JobHistory history_;
  FileOperation operation_;
  WeightsLoader loader_;
  DirectoryWriter writer_;
  JobSaver saver_;
  EvaluationCycle evaluations_;
  BestModel best_;
  std::unique_ptr<PlanAdviser> adviser_;  // null until the memory is there
  StepBook book_;
  int64_t last_step_ns_ = 0;  // when a step was reduced, or the job went on
  bool draining_ = false;
  bool resting_ = false;
  Background background_;  // dies first
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_RUN_RUNNER_H_
