#include "server/planning/training_planner.h"

#include "base/status.h"

namespace roundhouse {

absl::StatusOr<TrainingPlan> TrainingPlanner::Plan(
    const PlanQuestion& question) const {
  TrainingPlan plan;
  ASSIGN_OR_RETURN(plan.question,
                   ReadPlanQuestion(question, files_,
                                    names_(question.caller, Role::kViewer)));
  ASSIGN_OR_RETURN(plan.forecast, ForecastStep(plan.question));
  return plan;
}

}  // namespace roundhouse
