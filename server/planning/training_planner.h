// Answers what training a model would come to on given devices.  Needs none of
// them, no job and no weights.
//
// Thread-safe.  Plan() reads config.json and may compute for seconds: for a
// thread of its own.
#ifndef ROUNDHOUSE_SERVER_PLANNING_TRAINING_PLANNER_H_
#define ROUNDHOUSE_SERVER_PLANNING_TRAINING_PLANNER_H_

#include <utility>

#include "absl/status/statusor.h"
#include "scheduler/estimate/step_forecast.h"
#include "server/access/names_of.h"
#include "server/planning/plan_question.h"

namespace roundhouse {

struct TrainingPlan {
  ForecastQuestion question;  // with every default
  StepForecast forecast;
};

class TrainingPlanner {
 public:
  // `files`, which opens what `names` finds, outlives it.
  TrainingPlanner(const FileOpener& files, NamesOf names)
      : files_(files), names_(std::move(names)) {}

  // What does not fit is in the forecast.  Errors as ReadPlanQuestion's, and
  // kInvalidArgument for sizes that cannot be planned for.
  absl::StatusOr<TrainingPlan> Plan(const PlanQuestion& question) const;

 private:
  const FileOpener& files_;
  const NamesOf names_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_PLANNING_TRAINING_PLANNER_H_
