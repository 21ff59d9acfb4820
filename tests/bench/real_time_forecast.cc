#include "tests/bench/real_time_forecast.h"

#include <algorithm>
#include <vector>

#include "base/status.h"
#include "scheduler/plan/step_plan.h"
#include "scheduler/search/step_search.h"
#include "scheduler/simulate/dispatcher_feed.h"
#include "scheduler/simulate/step_simulator.h"

namespace roundhouse::bench {
namespace {

Updates UpdatesOf(const FakeJobOptions& options) {
  // Its steps are of one round: those of the daemon's jobs are in one pass.
  return options.clip ? Updates::kClipped : Updates::kOnePass;
}

bool IsHostWork(const Interval& interval) {
  return interval.resource.type == ResourceType::kHost;
}

RealTimeForecast Measure(const Schedule& schedule,
                         const ForecastQuestion& question) {
  // From the last computation of the first step to that of the last one.
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t busy_ns = 0;
  RealTimeForecast forecast;
  for (const Interval& interval : schedule.intervals) {
    if (IsHostWork(interval)) {
      forecast.host_bytes +=
          static_cast<double>(interval.bytes) / question.steps;
    }
    if (!IsCompute(interval.kind)) continue;
    if (interval.step == 0) begin_ns = std::max(begin_ns, interval.end_ns);
    end_ns = std::max(end_ns, interval.end_ns);
    if (interval.step > 0) busy_ns += interval.end_ns - interval.start_ns;
  }
  const auto span_ns = static_cast<double>(end_ns - begin_ns);
  forecast.step_ms = span_ns * 1e-6 / (question.steps - 1);
  forecast.bubble_percent =
      100 - 100 * static_cast<double>(busy_ns) /
                (span_ns * question.machine.device_count());
  return forecast;
}

}  // namespace

Machine MachineOf(const FakeJobOptions& options) {
  Machine machine;
  machine.devices.assign(options.devices, {.memory_bytes = kDeviceBytes});
  for (size_t i = 0; i < options.speeds.size(); ++i) {
    machine.devices[i].speed = options.speeds[i];
  }
  machine.link_rate = options.pcie_gbps;
  machine.host_rate = options.host_gbps;
  return machine;
}

absl::StatusOr<RealTimeForecast> Forecast(const ForecastQuestion& question) {
  const int micro_batches = question.micro_batches;
  StepPlan plan = PlanOfRound(question.plan, micro_batches, question.groups);
  RETURN_IF_ERROR(CheckStepPlan(plan, question.costs.layers + 1, micro_batches,
                                question.machine.device_count()));
  const HostWork::Rounds rounds{question.steps, 1, micro_batches,
                                question.updates};
  StepOptions step;
  step.contributions = Contributions::kFp32;
  step.chunk_bytes = kCopyChunkBytes;
  step.intervals = Intervals::kWhole;
  step.fused = FusedSlots::kByLayer;
  DispatcherFeed feed({{&question.costs, &plan, rounds}}, question.machine, {});
  const Schedule schedule =
      SimulateJobs(question.machine,
                   {{&question.costs,
                     RepeatedParts(PartsOf(plan, micro_batches), question.steps,
                                   micro_batches),
                     rounds}},
                   step, {}, feed);
  return Measure(schedule, question);
}

absl::StatusOr<RealTimeForecast> ForecastRealTime(
    const FakeJobOptions& options) {
  ForecastQuestion question;
  question.costs = options.costs;
  // The fake job's model (fake_job.h) is of the tied kind.
  question.costs.tied_head = true;
  question.costs.embedding_gradient_bytes = options.costs.head_gradient_bytes;
  question.plan = options.plan;
  question.machine = MachineOf(options);
  // As tests/fakes/fake_device.h.
  question.machine.links_share_host_rate = false;
  question.micro_batches = static_cast<int>(options.micro_batches);
  question.groups = options.groups();
  question.steps = static_cast<int>(options.steps);
  question.updates = UpdatesOf(options);
  return Forecast(question);
}

absl::StatusOr<Plan> SearchedPlan(const FakeJobOptions& options) {
  SearchOptions search;
  search.contributions = Contributions::kFp32;
  search.updates = UpdatesOf(options);
  search.groups = options.groups();
  search.most_look_ahead = 1;
  search.fused = FusedSlots::kByLayer;
  const auto micro_batches = static_cast<int>(options.micro_batches);
  ASSIGN_OR_RETURN(
      const SearchResult found,
      SearchStepPlan(options.costs, MachineOf(options), micro_batches, search));
  return PlanOfFullRound(found.plan, micro_batches);
}

Plan AllWidePlan(int layers, int width, int micro_batches, int groups) {
  return PlanOfFullRound(
      UniformPlan(BlockByBlock(layers), {width, width, width}, micro_batches,
                  groups),
      micro_batches);
}

Plan AllWidePlan(const FakeJobOptions& options) {
  return AllWidePlan(options.costs.layers, options.groups(),
                     static_cast<int>(options.micro_batches), options.groups());
}

}  // namespace roundhouse::bench
