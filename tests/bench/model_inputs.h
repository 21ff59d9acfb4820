// What a run in real time takes from the inputs of a simulation
// (scheduler/plan/model_costs.h).  Pure.
#ifndef ROUNDHOUSE_TESTS_BENCH_MODEL_INPUTS_H_
#define ROUNDHOUSE_TESTS_BENCH_MODEL_INPUTS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "scheduler/plan/model_costs.h"
#include "scheduler/plan/plan.h"

namespace roundhouse::bench {

// The row of `model`; `text` is that of the file at `path`.  NOT_FOUND: it has
// no such row.  Other errors as ParseModelCosts.
absl::StatusOr<ModelCosts> FindModelCosts(const std::string& text,
                                          const std::string& path,
                                          const std::string& model);

// The published planner's plan with a fused stage for `devices` devices of
// `device_bytes`, gradients held in fp32.
absl::StatusOr<Plan> PublishedPlanOf(const ModelCosts& costs, int devices,
                                     int64_t device_bytes);

// {"forward": [[0, 3]], "backward": [[4, 28], [0, 3]]}, as a job file's `plan`;
// with forward_width and backward_width where it is split.
std::string PlanJson(const Plan& plan);
// The inverse.  INVALID_ARGUMENT: not such a plan of `layers` layers and the
// head.
absl::StatusOr<Plan> ParsePlanJson(const std::string& text, int layers);

// What one micro-batch computes under the plan, all devices together.
double WorkMs(const ModelCosts& costs, const Plan& plan);

}  // namespace roundhouse::bench

#endif  // ROUNDHOUSE_TESTS_BENCH_MODEL_INPUTS_H_
