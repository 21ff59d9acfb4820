// What a JobRunner tells whoever runs jobs: progress, events, measurements.
//
// All calls come on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_JOBS_RUNNER_LISTENER_H_
#define ROUNDHOUSE_SERVER_JOBS_RUNNER_LISTENER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "base/wire/messages.h"
#include "scheduler/dispatch/dispatcher.h"
#include "scheduler/jobs/lifecycle.h"
#include "server/jobs/evaluation_samples.h"
#include "server/observe/trace_recorder.h"

namespace roundhouse {

struct RunningReport {
  int64_t step = 0;  // steps begin after it
  int64_t total_steps = 0;
  int64_t tokens = 0;  // targets trained on up to `step`
  // Evaluations up to this step's will not come again; -1: there is none.
  int64_t evaluated_step = -1;
  std::vector<std::string> samples;  // lines of samples.jsonl so far
};

struct StepReport {
  int64_t step = 0;
  double loss = 0;
  double learning_rate = 0;
  // Unscaled; none: the gradients of fp16 overflowed, and nothing was updated.
  std::optional<double> grad_norm;
  std::optional<double> loss_scale;  // of the step's gradients, with fp16
  double epoch = 0;
  int64_t tokens = 0;  // targets of this step
  double seconds = 0;
};

struct CheckpointReport {
  int64_t step = 0;
  std::string path;
  uint64_t bytes = 0;
  double seconds = 0;  // from the first file to the rename on disk
};

// The job waits with all its memory, for what it saves can't be written.
struct HeldReport {
  // RUNNING, FINALIZING, or PAUSING: the save of a pause.
  JobState state = JobState::kRunning;
  // STORAGE_FULL, HOST_MEMORY (of the save's own tables) or STORAGE_ERROR.
  JobReason reason = JobReason::kStorageFull;
  std::string why;
  uint64_t need_bytes = 0;  // of disk
  std::string directory;    // where
  int64_t saved_step = 0;   // of the newest checkpoint; 0: none
};

struct JobOutcome {
  JobState state = JobState::kFailed;  // SUCCEEDED, PAUSED, CANCELLED, FAILED,
                                       // or QUEUED: memory was not there
  JobReason reason = JobReason::kNone;
  std::string message;
  std::string output_path;
};

class RunnerListener {
 public:
  virtual ~RunnerListener() = default;
  virtual void OnRunning(const RunningReport& report) = 0;
  virtual void OnStep(const StepReport& report) = 0;
  virtual void OnEvaluation(int64_t step, double loss) = 0;
  // A completion of each of the eval_prompts.
  virtual void OnSamples(const EvaluationSamples::Found& found) = 0;
  virtual void OnCheckpoint(const CheckpointReport& report) = 0;
  virtual void OnCheckpointFailed(int64_t step, const absl::Status& status) = 0;
  // One that was there did not verify; for the job's log.
  virtual void OnCheckpointCorrupt(const std::string& text) = 0;
  // For the job's log.
  virtual void OnNote(const std::string& text) = 0;
  // For the job's log and events: it goes on, but its user should know.
  virtual void OnWarning(const std::string& text) = 0;
  virtual void OnFinalizing() = 0;
  // Nothing of it goes on until TryAgain, Cancel or Drain.
  virtual void OnHeld(const HeldReport& report) = 0;
  // A slot of `step` goes to its device, as this attempt.
  virtual void OnSlotSent(uint64_t attempt, const RunSlotAction& slot,
                          int64_t step) = 0;
  virtual void OnSlot(DeviceId device, SlotPass pass,
                      const wire::SlotDone& done) = 0;
  // A slot that `device` had when its worker died was sent again.
  virtual void OnSlotReplayed(DeviceId device) = 0;
  // The worker could not do it.
  virtual void OnSlotFailed(DeviceId device) = 0;
  // Before it is sent; may change what else the worker tells of it.
  virtual void OnSlotCommand(wire::RunSlot& command) = 0;
  virtual void OnDispatchLatency(double seconds) = 0;
  virtual void OnHostOp(const HostOpTimes& work) = 0;
  // Its last update is made; OnStep came before.
  virtual void OnStepDone(int64_t step) = 0;
  // The reductions of one unit in one step and its update, added up.
  virtual void OnUnitUpdated(double seconds) = 0;
  // Units' sums that wide slots added up between their devices, and that they
  // were to.
  virtual void OnSumExchanges(int64_t exchanged, int64_t failed) = 0;
  // From the death of a worker that had slots to its device's next slot.
  virtual void OnRecovered(DeviceId device, double seconds) = 0;
  // The last call; the runner holds no arena memory any more.
  virtual void OnFinished(const JobOutcome& outcome) = 0;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_JOBS_RUNNER_LISTENER_H_
