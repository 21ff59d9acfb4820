// What happens between two steps where an evaluation is due: the validation set
// is computed, then the eval_prompts are completed, then the job goes on.
//
//   idle --Begin--> validating --OnValidated--> sampling --> idle (over)
//              |                     |             ^
//              +---- no loss due ----|-------------+
//                                    +---- no prompts due ---> idle (over)
//                                    +---- the job rests ----> idle (Begin)
//
// Owned by the job's runner.  Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_RUN_EVALUATION_CYCLE_H_
#define ROUNDHOUSE_SERVER_RUN_EVALUATION_CYCLE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/wire/commands.h"
#include "nlohmann/json_fwd.hpp"
#include "server/arena/host_arena.h"
#include "server/job/runner_options.h"
#include "server/loop/event_loop.h"
#include "server/run/evaluation_samples.h"
#include "server/run/evaluations.h"
#include "server/run/job_events.h"
#include "server/run/job_history.h"
#include "server/steps/step_marks.h"
#include "server/workers/worker_pool.h"

namespace roundhouse {

class EvaluationCycle {
 public:
  enum class Loss { kBest, kOther };  // or there was none

  struct Calls {
    // Begins the computation of the validation set; OnValidated is to follow.
    std::function<void()> validate;
    // The weights that samples are to read.  Nobody writes them until
    // `sampled`.
    std::function<std::vector<wire::SlotUnit>()> units;
    std::function<bool()> ending;  // the job ends
    // No device may begin to work for the job; Begin follows once one may.
    std::function<bool()> resting;
    // The evaluation is over, unless the job ends: what it is worth.
    std::function<void(Loss loss)> over;
    // Samples were drawn, or could not be; after `over`, from the loop.
    std::function<void()> sampled;
    // A device has computed for samples for as long.
    std::function<void(int64_t ns)> computed = [](int64_t) {};
  };
  // All outlive it.
  struct Surroundings {
    EventLoop& loop;
    HostArena& arena;
    WorkerPool& pool;
    const StepMarks& marks;
    JobHistory& history;
    JobEvents& events;
  };

  EvaluationCycle(const Surroundings& around, const RunnerOptions& options,
                  Calls calls);

  // The step after which none begins, as far as is known now.
  int64_t EndStep() const;
  // Whether one comes after the newest step that has begun.
  bool Due() const;
  // REQUIRES: Due(), and no step is unfinished.
  void Begin();
  // The mean loss of the validation set, in nats per target token.
  void OnValidated(double loss);
  bool sampling() const { return samples_.running(); }
  void StopSampling() { samples_.Stop(); }
  void OnWorkerUp(WorkerId worker) { samples_.OnWorkerUp(worker); }
  void OnDeviceLost() { samples_.OnDeviceLost(); }

  // Goes on from a checkpoint whose history `history` has: the best evaluation
  // counts only where it is of this job, which then has a checkpoint of it.
  void GoOnFrom(const nlohmann::json& trainer_state, bool own,
                const std::string& samples);

  const std::optional<Evaluation>& best() const { return evaluations_.best(); }
  int64_t since_best() const { return evaluations_.since_best(); }
  bool out_of_patience() const { return evaluations_.OutOfPatience(); }
  int64_t evaluated_step() const { return evaluations_.evaluated_step(); }
  const std::vector<std::string>& sample_lines() const {
    return samples_.lines();
  }
  // As Evaluations.
  void DropBestOf(int64_t step) { evaluations_.DropBestOf(step); }
  void ReplaceBest(const std::optional<Evaluation>& next) {
    evaluations_.ReplaceBest(next);
  }

 private:
  void BeginSamples(Loss loss);
  void AfterSamples(Loss loss,
                    const absl::StatusOr<EvaluationSamples::Found>& found);

  const Surroundings around_;
  const Calls calls_;
  Evaluations evaluations_;
  EvaluationSamples samples_;
  Loss before_rest_ = Loss::kOther;  // of the one whose samples are to come
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_RUN_EVALUATION_CYCLE_H_
