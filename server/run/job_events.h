// What a running job tells whoever runs jobs: progress, checkpoints, its end.
//
// All calls but KeepLines come on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_RUN_JOB_EVENTS_H_
#define ROUNDHOUSE_SERVER_RUN_JOB_EVENTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/job/job_reports.h"
#include "server/run/evaluation_samples.h"

namespace roundhouse {

class JobEvents {
 public:
  virtual ~JobEvents() = default;
  // Before OnRunning, on a thread of the job's own: what its files have of
  // later steps goes.  Blocks on the disk.
  virtual void KeepLines(const RunningReport&) {}
  virtual void OnRunning(const RunningReport& report) = 0;
  virtual void OnStep(const StepReport& report) = 0;
  virtual void OnEvaluation(int64_t step, double loss) = 0;
  // A completion of each of the eval_prompts.
  virtual void OnSamples(const EvaluationSamples::Found& found) = 0;
  virtual void OnCheckpoint(const CheckpointReport& report) = 0;
  virtual void OnCheckpointFailed(int64_t step, const absl::Status& status) = 0;
  // The steps of those that are there, ascending, after old ones were removed.
  virtual void OnCheckpointsLeft(const std::vector<int64_t>& steps) = 0;
  // One that was there did not verify; for the job's log.
  virtual void OnCheckpointCorrupt(const std::string& text) = 0;
  // For the job's log.
  virtual void OnNote(const std::string& text) = 0;
  // For the job's log and events: it goes on, but its user should know.
  virtual void OnWarning(const std::string& text) = 0;
  virtual void OnFinalizing() = 0;
  // Nothing of it goes on until TryAgain, Cancel or Drain.
  virtual void OnHeld(const HeldReport& report) = 0;
  // The last call; the job holds no arena memory any more.
  virtual void OnFinished(const JobOutcome& outcome) = 0;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_RUN_JOB_EVENTS_H_
