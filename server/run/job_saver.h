// What a job leaves on disk: its checkpoints, of which old ones are removed,
// and its output.
//
// Owned by the job's runner.  Runs on the event loop's thread; what waits for
// the disk goes through DirectoryWriter and Background.
#ifndef ROUNDHOUSE_SERVER_RUN_JOB_SAVER_H_
#define ROUNDHOUSE_SERVER_RUN_JOB_SAVER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/loss_scaler.h"
#include "server/job/runner_options.h"
#include "server/loop/background.h"
#include "server/run/job_events.h"
#include "server/weights/checkpoint.h"
#include "server/weights/directory_writer.h"
#include "server/weights/training_state.h"

namespace roundhouse {

class JobSaver {
 public:
  using Done = std::function<void(absl::Status)>;

  // What is saved: a moment of the job.
  struct Snapshot {
    const TrainingState& state;
    int64_t step = 0;  // steps completed
    // The update that left the weights; not `step` where others were loaded.
    int64_t update = 0;
    std::string trainer_state;         // the file's text
    std::vector<std::string> samples;  // lines of samples.jsonl
  };
  // What a checkpoint's manifest says besides.
  struct Trained {
    int64_t tokens = 0;
    std::optional<LossScaler::State> loss_scaler;  // with fp16
  };
  // All outlive it.
  struct Surroundings {
    Background& background;
    DirectoryWriter& writer;
    JobEvents& events;
  };

  JobSaver(const Surroundings& around, const RunnerOptions& options)
      : around_(around), options_(options) {}
  JobSaver(const JobSaver&) = delete;
  JobSaver& operator=(const JobSaver&) = delete;

  // Names of the job's own copies of tokenizer files, which every directory
  // gets.
  void SetTokenizerFiles(std::vector<std::string> names) {
    tokenizer_files_ = std::move(names);
  }

  // Writes checkpoint-<step>, tells of it, then calls `done`: at once where
  // nothing could be planned, else as DirectoryWriter::Write.
  // REQUIRES: !saving(); nothing writes what the snapshot has until `done`.
  void Save(const Snapshot& snapshot, const Trained& trained, Done done);
  bool saving() const { return saving_; }
  // The newest checkpoint; -1: none.
  int64_t saved_step() const { return saved_step_; }
  // The job goes on from a checkpoint.
  void GoOnFrom(int64_t step) { saved_step_ = step; }
  // Writes again what is held.  REQUIRES: as DirectoryWriter::TryAgain.
  void TryAgain();

  // Removes what is beyond the spec's save_total_limit, but never `best`.
  void RemoveOld(std::optional<int64_t> best);

  // Writes the job's output to `path`, with `metrics` as its metrics.jsonl;
  // `done` as DirectoryWriter::Write, with ALREADY_EXISTS when what is there is
  // not this job's: it stays.  An error, and no `done`, when it can't be
  // planned.
  absl::Status WriteOutput(const std::string& path, const Snapshot& snapshot,
                           const std::vector<std::string>& metrics, Done done);

 private:
  enum class Kind { kCheckpoint, kOutput };

  absl::StatusOr<DirectoryPlan> Plan(const std::string& path,
                                     const Snapshot& snapshot, Kind kind) const;
  CheckpointManifest ManifestOf(const Snapshot& snapshot,
                                const Trained& trained) const;
  void Report(int64_t step) const;

  const Surroundings around_;
  const RunnerOptions& options_;
  std::vector<std::string> tokenizer_files_;
  bool saving_ = false;
  int64_t begun_ns_ = 0;  // the save
  int64_t saved_step_ = -1;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_RUN_JOB_SAVER_H_
