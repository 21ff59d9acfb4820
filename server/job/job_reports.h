// What a job that runs says of itself (job_events.h).  Plain values.
#ifndef ROUNDHOUSE_SERVER_JOB_JOB_REPORTS_H_
#define ROUNDHOUSE_SERVER_JOB_JOB_REPORTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/job_state.h"
#include "base/model/expert_load.h"

namespace roundhouse {

struct RunningReport {
  int64_t step = 0;  // steps begin after it
  int64_t total_steps = 0;
  int64_t tokens = 0;  // targets trained on up to `step`
  // Evaluations up to this step's will not come again; -1: there is none.
  int64_t evaluated_step = -1;
  std::vector<std::string> samples;  // lines of samples.jsonl so far
  bool has_prompts = false;          // more of them will come
};

struct StepReport {
  int64_t step = 0;
  double loss = 0;
  double learning_rate = 0;
  // Unscaled; none: the gradients of fp16 overflowed, and nothing was updated.
  std::optional<double> grad_norm;
  std::optional<double> loss_scale;  // its gradients', with fp16
  double epoch = 0;
  int64_t tokens = 0;  // targets of this step
  double seconds = 0;
  std::vector<LayerLoad> experts;  // of each layer that has some
};

struct CheckpointReport {
  int64_t step = 0;
  std::string path;
  uint64_t bytes = 0;
  double seconds = 0;  // from the first file to the rename on disk
};

// The job waits with all its memory, for what it saves can't be written, or as
// it was told.
struct HeldReport {
  // RUNNING, FINALIZING, or PAUSING: the save of a pause.
  JobState state = JobState::kRunning;
  // STORAGE_FULL, HOST_MEMORY (of the save's own tables) or STORAGE_ERROR;
  // none: it was told to.
  JobReason reason = JobReason::kStorageFull;
  std::string why;
  uint64_t need_bytes = 0;  // on the disk
  std::string directory;    // where
  int64_t saved_step = 0;   // the newest checkpoint; 0: none
};

struct JobOutcome {
  JobState state = JobState::kFailed;  // SUCCEEDED, PAUSED, CANCELLED, FAILED,
                                       // or QUEUED: memory was not there
  JobReason reason = JobReason::kNone;
  std::string message;
  std::string output_path;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_JOB_JOB_REPORTS_H_
