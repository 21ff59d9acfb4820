// What a run in real time should come to: the same job, plan and Dispatcher in
// virtual time (scheduler/simulate).  Pure.
#ifndef ROUNDHOUSE_TESTS_BENCH_REAL_TIME_FORECAST_H_
#define ROUNDHOUSE_TESTS_BENCH_REAL_TIME_FORECAST_H_

#include "absl/status/statusor.h"
#include "scheduler/plan/machine.h"
#include "scheduler/plan/model_costs.h"
#include "scheduler/plan/plan.h"
#include "scheduler/simulate/host_work.h"
#include "tests/bench/fake_job.h"

namespace roundhouse::bench {

// Devices and rates of the options.
Machine MachineOf(const FakeJobOptions& options);

struct ForecastQuestion {
  ModelCosts costs;
  Plan plan;
  Machine machine;
  int micro_batches = 1;  // of a step, in one round
  int groups = 1;
  int steps = 2;  // at least
  Updates updates = Updates::kClipped;
};

// Figures of the steps after the first.
struct RealTimeForecast {
  double step_ms = 0;
  double bubble_percent = 0;  // device time without computation
  // What reductions and updates of a step move in host memory.
  double host_bytes = 0;
};

// Errors of the simulator.
absl::StatusOr<RealTimeForecast> Forecast(const ForecastQuestion& question);

// The forecast for `options.plan`, in milliseconds of the inputs.
absl::StatusOr<RealTimeForecast> ForecastRealTime(
    const FakeJobOptions& options);

// The width-aware search's plan for the same job (`options.plan` is not read).
absl::StatusOr<Plan> SearchedPlan(const FakeJobOptions& options);
// Every block in a stage of its own, `width` devices wide.
Plan AllWidePlan(int layers, int width, int micro_batches, int groups);
// On all devices.
Plan AllWidePlan(const FakeJobOptions& options);

}  // namespace roundhouse::bench

#endif  // ROUNDHOUSE_TESTS_BENCH_REAL_TIME_FORECAST_H_
