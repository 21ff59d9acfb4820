// One job that runs: its runner, what the runner reads, and who is told what
// the runner reports (files, store, metrics).
//
// Runs on the event loop's thread, but for KeepLines.
#ifndef ROUNDHOUSE_SERVER_JOBS_RUNNING_JOB_H_
#define ROUNDHOUSE_SERVER_JOBS_RUNNING_JOB_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/priority.h"
#include "nlohmann/json_fwd.hpp"
#include "server/dataset/dataset.h"
#include "server/job/job_files.h"
#include "server/jobs/transitions.h"
#include "server/observe/device_reports.h"
#include "server/observe/loss_curve.h"
#include "server/observe/metrics.h"
#include "server/observe/timing_log.h"
#include "server/observe/trace_recorder.h"
#include "server/planning/job_needs.h"
#include "server/run/job_events.h"
#include "server/run/job_telemetry.h"
#include "server/run/runner.h"
#include "server/store/store.h"

namespace roundhouse {

class RunningJob final : public JobEvents {
 public:
  // Everything outlives it.
  struct World {
    JobStore& store;
    Transitions& transitions;
    ServerMetrics& metrics;
    DeviceReports& devices;
    TraceRecorder& recorder;
    TimingLog* samples = nullptr;  // test only
    // has_steps() is another.
    std::function<void()> steps_changed;
    // The job is in another state; the last of them.
    std::function<void(const std::string& id, JobState state)> changed;
    // It waits with its memory (JobEvents::OnHeld).
    std::function<void(const std::string& id, const HeldReport& report)> held;
    std::function<void(const std::string& id, const JobOutcome& outcome)>
        finished;
  };

  RunningJob(const World& world, const JobRecord& job,
             std::unique_ptr<JobFiles> files)
      : world_(world),
        id_(job.id),
        owner_({job.project, job.owner}),
        priority_(job.priority),
        files_(std::move(files)),
        progress_(job.progress),
        telemetry_({world.metrics, world.devices, world.recorder,
                    [this](const std::string& text) { OnNote(text); }},
                   job.id) {}

  const std::string& id() const { return id_; }
  const JobOwner& owner() const { return owner_; }
  Priority priority() const { return priority_; }
  void SetPriority(Priority priority);
  JobFiles& files() { return *files_; }
  JobRunner& runner() { return *runner_; }
  StepTelemetry& telemetry() { return telemetry_; }
  const Dataset& train() const { return *train_; }
  const Dataset* validation() const { return validation_.get(); }
  const JobProgress& progress() const { return progress_; }
  const LossCurve& losses() const { return losses_; }
  const LossCurve& validation_losses() const { return validation_losses_; }
  // As it is in the store, where the engine writes it.
  JobState state() const { return state_; }
  void set_state(JobState state) { state_ = state; }
  // What it waits with; none: it does not.
  const std::optional<HeldReport>& held() const { return held_; }
  // Times in a row that it had to.
  int hold_count() const { return hold_count_; }
  // When it may try again by itself.
  absl::Time next_try() const { return next_try_; }
  void Wait(absl::Time next_try) { next_try_ = next_try; }
  // It tries again, or rests no more.  REQUIRES: held().
  void GoOn();
  // It waits for room, in the middle of its steps.
  bool MayRestHeld() const {
    return held_.has_value() && held_->reason != JobReason::kNone &&
           runner_->MayRest();
  }
  // REQUIRES: runner().MayRest().
  void Rest(absl::Time now);
  absl::Time rests_since() const { return pause_.rests_since; }
  bool rested() const { return rests_since() != absl::InfinitePast(); }
  // Its rest ends with a save, for its memory is needed.
  void Spill();
  bool spilled() const { return pause_.spilled; }
  // It takes no place of one that runs.
  bool waits() const { return held_.has_value() || spilled(); }
  // What follows once it is PAUSED.
  enum class AfterPause { kPaused, kQueued };
  AfterPause after_pause() const { return pause_.after; }
  void set_after_pause(AfterPause after) { pause_.after = after; }
  // On the status page.
  int color() const { return color_; }
  void set_color(int color) { color_ = color; }
  // What it was admitted to need of the arena.
  const HostNeed& need() const { return need_; }
  void set_need(const HostNeed& need) { need_ = need; }
  // The part that its loads and saves take when they come.
  uint64_t table_bytes() const { return need_.table_bytes; }

  // Whether devices have something to do for it, now or soon: not while it
  // loads, nor once its last step is reduced, though an evaluation may follow.
  bool has_steps() const { return has_steps_; }

  // --- how long it takes

  // What its steps do (WorkOf), and how many it makes in all; 0: not known.
  uint64_t work() const { return work_; }
  void SetWork(uint64_t work, int64_t steps) {
    work_ = work;
    steps_ = steps;
  }
  // The last one, as far as is known; 0: not known before it runs.
  int64_t last_step() const;
  // Device time of a step, and time from one to the next; 0: not known yet.
  double step_device_seconds() const;
  double step_seconds() const { return seconds_per_step_; }
  // Until its first step; 0: it has not come there.
  double loading_seconds() const { return loading_seconds_; }
  // Since it began to load, and since its last step; 0: it has steps left.
  double age_seconds() const;
  double ending_seconds() const;
  int64_t host_ns() const { return telemetry_.host_ns(); }
  int64_t device_ns() const { return telemetry_.device_ns(); }

  // Before SetRunner, which comes once; validation may be none.
  void SetData(std::unique_ptr<Dataset> train,
               std::unique_ptr<Dataset> validation);
  void SetRunner(std::unique_ptr<JobRunner> runner) {
    runner_ = std::move(runner);
  }

  // For the job's log.
  void OnNote(const std::string& text) override { files_->Log(text); }

 private:
  struct Pause {
    absl::Time rests_since = absl::InfinitePast();
    bool spilled = false;
    AfterPause after = AfterPause::kPaused;
  };

  void KeepLines(const RunningReport& report) override;
  void OnRunning(const RunningReport& report) override;
  void OnStep(const StepReport& report) override;
  void OnEvaluation(int64_t step, double loss) override;
  void OnSamples(const EvaluationSamples::Found& found) override;
  void OnCheckpoint(const CheckpointReport& report) override;
  void OnCheckpointFailed(int64_t step, const absl::Status& status) override;
  void OnCheckpointsLeft(const std::vector<int64_t>& steps) override;
  void OnCheckpointCorrupt(const std::string& text) override;
  void OnWarning(const std::string& text) override;
  void OnFinalizing() override;
  void OnHeld(const HeldReport& report) override;
  void OnFinished(const JobOutcome& outcome) override;

  void LogStep(const StepReport& report);
  void StepsBegin();
  void StepsEnd();
  void UpdateProgress();

  // What KeepLines found, for OnRunning.
  struct Kept {
    LossCurve losses;
    LossCurve validation_losses;
    std::vector<std::string> notes;

    void Take(const nlohmann::json& metric);
  };

  const World world_;
  const std::string id_;
  const JobOwner owner_;
  Priority priority_;
  std::unique_ptr<JobFiles> files_;
  std::unique_ptr<Dataset> train_;
  std::unique_ptr<Dataset> validation_;
  JobProgress progress_;
  JobState state_ = JobState::kLoading;
  std::optional<HeldReport> held_;
  int hold_count_ = 0;
  absl::Time next_try_;
  Pause pause_;
  int color_ = 0;
  LossCurve losses_;
  LossCurve validation_losses_;
  Kept kept_;
  double seconds_per_step_ = 0;  // smoothed
  HostNeed need_;
  bool has_steps_ = false;
  uint64_t work_ = 0;
  int64_t steps_ = 0;
  const int64_t begun_ns_ = MonotonicNs();
  double loading_seconds_ = 0;
  int64_t last_step_ns_ = 0;  // when it made its last step
  // The first step since it runs, and what was computed until then.
  std::optional<int64_t> first_step_;
  int64_t first_device_ns_ = 0;
  JobTelemetry telemetry_;
  std::unique_ptr<JobRunner> runner_;  // dies first
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_JOBS_RUNNING_JOB_H_
