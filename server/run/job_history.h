// What a job's steps and evaluations came to, as its trainer_state.json and its
// output's metrics.jsonl tell it.
//
// Values only; thread-compatible.
#ifndef ROUNDHOUSE_SERVER_RUN_JOB_HISTORY_H_
#define ROUNDHOUSE_SERVER_RUN_JOB_HISTORY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nlohmann/json_fwd.hpp"
#include "server/job/job_reports.h"
#include "server/run/evaluations.h"
#include "server/spec/spec.h"
#include "server/steps/step_marks.h"

namespace roundhouse {

class JobHistory {
 public:
  // `directory`: the job's, where its checkpoints are.
  JobHistory(const JobSpec& spec, int64_t steps_per_epoch,
             std::string directory);

  // Takes up the entries of a checkpoint's trainer_state.json that are of
  // `step` or earlier: later steps were seen but not kept, and come again.
  // REQUIRES: nothing was added yet.
  void GoOnFrom(const nlohmann::json& trainer_state, int64_t step,
                int64_t tokens);

  // What a trained step came to.  It has an entry each logging_steps, and where
  // it is `last_step`: the mean loss since the entry before.
  void AddStep(const StepReport& report, int64_t last_step);
  void AddEvaluation(const Evaluation& evaluation);

  double Epoch(int64_t step) const;
  int64_t tokens_trained() const { return tokens_trained_; }
  // JSON objects, in the order in which they came.
  const std::vector<std::string>& entries() const { return entries_; }
  // The entries that are of evaluations.  A loss that is no number, in the
  // history of somebody else's checkpoint, is the largest double.
  std::vector<Evaluation> FoundEvaluations() const;

  // The text of trainer_state.json; `best` none: no evaluation counts.
  std::string TrainerState(const StepMarks& marks,
                           const std::optional<Evaluation>& best) const;

 private:
  // Steps that have no entry yet.
  struct LossSum {
    double sum = 0;
    int64_t steps = 0;
  };

  const JobSpec& spec_;
  const int64_t steps_per_epoch_;
  const std::string directory_;
  std::vector<std::string> entries_;
  LossSum since_entry_;
  int64_t tokens_trained_ = 0;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_RUN_JOB_HISTORY_H_
