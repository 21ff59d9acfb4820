// What the quickstart's job should come to under a plan: its layers' measured
// times, in virtual time (scheduler/simulate).  Pure.
#ifndef ROUNDHOUSE_TESTS_BENCH_QUICKSTART_FORECAST_H_
#define ROUNDHOUSE_TESTS_BENCH_QUICKSTART_FORECAST_H_

#include <string>

#include "absl/status/statusor.h"
#include "scheduler/plan/model_costs.h"
#include "scheduler/plan/plan.h"
#include "tests/bench/real_time_forecast.h"
#include "tests/bench/samples.h"

namespace roundhouse::bench {

// The job's four micro-batches of a step (deploy/quickstart.d/job.yaml), of as
// many groups.
inline constexpr int kQuickstartMicroBatches = 4;

// The costs of the model that config.json's text describes. INVALID_ARGUMENT:
// it is no model, or a layer has no times.
absl::StatusOr<ModelCosts> QuickstartCosts(const std::string& config_json,
                                           const StepSamples& samples);

// Links take no time to speak of; host work is as fast as it was, in all of a
// step.  Dispatch and hand-overs take none.  What slots computed outside of
// their layers (beginning, sums, giving memory back) is shared out over these.
// REQUIRES: the devices of `samples` computed.
absl::StatusOr<RealTimeForecast> ForecastQuickstart(const ModelCosts& costs,
                                                    const Plan& plan,
                                                    const StepSamples& samples);

// The width-aware search's for these times, as a job file has it.
absl::StatusOr<std::string> SearchedQuickstartPlan(const ModelCosts& costs,
                                                   const StepSamples& samples);

}  // namespace roundhouse::bench

#endif  // ROUNDHOUSE_TESTS_BENCH_QUICKSTART_FORECAST_H_
