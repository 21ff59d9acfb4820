// What a run in real time should come to: the same job, plan and Dispatcher in
// virtual time (scheduler/simulate).  Pure.
#ifndef ROUNDHOUSE_TESTS_BENCH_REAL_TIME_FORECAST_H_
#define ROUNDHOUSE_TESTS_BENCH_REAL_TIME_FORECAST_H_

#include "absl/status/statusor.h"
#include "scheduler/plan/plan.h"
#include "tests/bench/fake_job.h"

namespace roundhouse::bench {

// In milliseconds of the inputs; of the steps after the first.
struct RealTimeForecast {
  double step_ms = 0;
  double bubble_percent = 0;  // device time without computation
};

// Of `options.plan`.  Errors of the simulator.
absl::StatusOr<RealTimeForecast> ForecastRealTime(
    const FakeJobOptions& options);

// The width-aware search's plan for the same job (`options.plan` is not read).
absl::StatusOr<Plan> SearchedPlan(const FakeJobOptions& options);
// Every block in a stage of its own on all devices.
Plan AllWidePlan(const FakeJobOptions& options);

}  // namespace roundhouse::bench

#endif  // ROUNDHOUSE_TESTS_BENCH_REAL_TIME_FORECAST_H_
