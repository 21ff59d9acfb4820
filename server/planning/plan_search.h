// The plan of a job's later steps: the width-aware search (scheduler/search)
// over what the job's layers were measured to take.
#ifndef ROUNDHOUSE_SERVER_PLANNING_PLAN_SEARCH_H_
#define ROUNDHOUSE_SERVER_PLANNING_PLAN_SEARCH_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/plan/cost_model.h"
#include "scheduler/plan/machine.h"
#include "scheduler/plan/model_costs.h"
#include "scheduler/plan/plan.h"
#include "scheduler/simulate/host_work.h"
#include "server/planning/plan_limits.h"

namespace roundhouse {

// The first plan is made of guessed times.  It is reviewed when this many steps
// were measured, later at most once in so many.
inline constexpr int64_t kFirstReviewedStep = 4;
inline constexpr int64_t kStepsBetweenReviews = 16;
// A plan goes on while measured times are this close to those that it was made
// of, and another one is not better by this share.
inline constexpr double kPlanTolerance = 0.1;

// When to search.  Thread-compatible.
class PlanReview {
 public:
  // After each measured step, with what a micro-batch takes in all of its
  // layers, and how fast each device is.  True: search now; times and devices
  // are those of the plan from then on.
  bool Due(int64_t micro_batch_ns, const std::vector<double>& speeds);

 private:
  int64_t steps_ = 0;
  int64_t reviewed_step_ = 0;  // 0: never
  int64_t micro_batch_ns_ = 0;
  std::vector<double> speeds_;
};

// Means over the decoder layers, which the simulator takes to be equal.
// `tokens` of the largest micro-batch.  REQUIRES: costs.training_measured().
ModelCosts MeasuredCosts(const CostModel& costs, const TrainedModel& model,
                         int64_t tokens);

struct JobPlanQuestion {
  ModelCosts costs;
  Machine machine;
  int rounds = 1;  // of a step
  Updates updates = Updates::kClipped;
  PlanLimitsOptions limits;
  // The sums of gradients that the job has room for; what it has between stages
  // is in limits.buffers.  Every plan goes on with both.
  ContributionBlocks sum_blocks;
  // More of the arena than this is not to be had.
  uint64_t host_bytes = 0;
  Plan present;
};

struct FoundPlan {
  Plan plan;
  int64_t step_ns = 0;          // simulated
  int64_t present_step_ns = 0;  // likewise; INT64_MAX: too wide for the devices
  int ranked = 0;
  int simulated = 0;

  bool better() const {
    return static_cast<double>(step_ns) <
           (1 - kPlanTolerance) * static_cast<double>(present_step_ns);
  }
};

// Fractions of a second, seconds for the largest models.  RESOURCE_EXHAUSTED:
// no plan of the search's family is within the limits.
// Pure; thread-safe; deterministic.
absl::StatusOr<FoundPlan> FindPlan(const JobPlanQuestion& question);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_PLANNING_PLAN_SEARCH_H_
