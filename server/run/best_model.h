// With load_best_model_at_end: brings the weights of the best evaluation from
// their checkpoint into the arena, before the output is written.  When that
// checkpoint is lost, the best one of those that there still are counts, and
// the job says which and why.
//
// Owned by the job's runner.  Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_RUN_BEST_MODEL_H_
#define ROUNDHOUSE_SERVER_RUN_BEST_MODEL_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/job/runner_options.h"
#include "server/loop/background.h"
#include "server/run/evaluation_cycle.h"
#include "server/run/job_events.h"
#include "server/run/job_history.h"
#include "server/run/weights_loader.h"
#include "server/steps/step_marks.h"
#include "server/weights/file_table.h"

namespace roundhouse {

class BestModel {
 public:
  struct Calls {
    std::function<bool()> ending;  // the job ends: nothing follows
    // What to load of a checkpoint that verified.  Any thread.
    std::function<absl::StatusOr<std::vector<FilePart>>(const std::string& path,
                                                        int64_t step)>
        parts;
    // Once, unless the job ends: the weights in the arena are the job's result;
    // or the disk did not give them, or the arena had no room for the tables.
    std::function<void(absl::Status)> over;
  };
  // All outlive it.
  struct Surroundings {
    Background& background;
    WeightsLoader& loader;
    EvaluationCycle& evaluations;
    const JobHistory& history;
    const StepMarks& marks;
    JobEvents& events;
  };

  BestModel(const Surroundings& around, const RunnerOptions& options,
            Calls calls)
      : around_(around), options_(options), calls_(std::move(calls)) {}
  BestModel(const BestModel&) = delete;
  BestModel& operator=(const BestModel&) = delete;

  // `over` may come at once.  REQUIRES: the last step is done.
  void Load();
  // The step whose weights took the last one's place in the arena, or are about
  // to; none: they are the last one's.
  std::optional<int64_t> step_in_arena() const { return step_in_arena_; }
  // Why the best model is not the result; "": it is, or nobody asked for it.
  const std::string& lost() const { return lost_; }

 private:
  void Read(int64_t step);
  void Lose(int64_t step, const absl::Status& why);
  void Replace(int64_t step, const std::vector<int64_t>& checkpoints);
  // The best of the models that there still are.
  std::optional<Evaluation> NextBest(int64_t lost_step,
                                     std::vector<int64_t> checkpoints) const;

  const Surroundings around_;
  const RunnerOptions& options_;
  const Calls calls_;
  std::optional<int64_t> step_in_arena_;
  std::string lost_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_RUN_BEST_MODEL_H_
