// Looks for a better plan for a job's later steps, from what its slots and host
// operations were measured to take.
//
//   measuring --review due--> searching (off the loop) --better--> waiting for
//   the buffers' pages --> found --no round uses the buffers--> adopted
//
// Results of the job do not depend on it.  Owned by the job's runner, and not
// used before the job's memory is allocated.  Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_RUN_PLAN_ADVISER_H_
#define ROUNDHOUSE_SERVER_RUN_PLAN_ADVISER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/wire/messages.h"
#include "scheduler/dispatch/dispatcher.h"
#include "scheduler/plan/cost_model.h"
#include "server/job/job_memory.h"
#include "server/job/runner_options.h"
#include "server/loop/background.h"
#include "server/planning/measured_rates.h"
#include "server/planning/plan_search.h"
#include "server/planning/round_buffers.h"
#include "server/steps/step_marks.h"
#include "server/steps/step_measures.h"
#include "server/workers/worker_pool.h"

namespace roundhouse {

class PlanAdviser final : public StepMeasures {
 public:
  // All outlive it; background work ends before it goes.
  struct Surroundings {
    const WorkerPool& pool;
    const Dispatcher& dispatcher;
    Background& background;
    JobMemory& memory;
  };
  struct Calls {
    std::function<bool()> wanted;  // the job still makes steps
    std::function<void(const std::string& text)> note;  // for the job's log
  };

  // REQUIRES: `around.memory` is allocated.
  PlanAdviser(const Surroundings& around, const RunnerOptions& options,
              Calls calls);
  ~PlanAdviser() override { Stop(); }
  PlanAdviser(const PlanAdviser&) = delete;
  PlanAdviser& operator=(const PlanAdviser&) = delete;

  // StepMeasures
  void ObserveSlot(SlotKind kind, double speed,
                   const wire::SlotDone& done) override;
  void ObserveHostOp(const RunHostOpAction& action, int64_t elements,
                     DType contributions, int64_t ns) override;
  // All slots of a step have been observed.
  void EndStep() { costs_.EndStep(); }

  // What layers were measured to take, for the dispatcher.
  std::vector<MicroBatchCost> LayerCosts() const;
  // No step is to begin before those that have begun are reduced, when Review
  // takes the plan.
  bool found() const { return found_.has_value(); }
  // After a step's last reduction: takes the plan that was found, if no round
  // uses the buffers, and begins to search where a review is due.
  void Review(const StepMarks& marks);
  // Gives back what a plan that was found has of the arena.
  void Stop();

 private:
  struct Found {
    FoundPlan plan;
    std::unique_ptr<RoundBuffers> buffers;
  };

  // What another plan may take of the arena.
  uint64_t FreeBytes() const;
  void Search(const std::vector<double>& speeds);
  JobPlanQuestion QuestionOfNow(const std::vector<double>& speeds) const;
  void OnFound(const FoundPlan& plan);
  void Adopt(int64_t step);

  const Surroundings around_;
  const RunnerOptions& options_;
  const Calls calls_;
  CostModel costs_;
  MeasuredRates rates_;
  PlanReview review_;
  bool searching_ = false;  // or waiting for pages
  std::optional<Found> found_;
  std::unique_ptr<RoundBuffers> coming_;  // their pages are waited for
  ArenaPages::Waiter wait_ = 0;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_RUN_PLAN_ADVISER_H_
