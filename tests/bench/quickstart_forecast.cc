#include "tests/bench/quickstart_forecast.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/model/config.h"
#include "base/status.h"
#include "scheduler/plan/cost_model.h"
#include "scheduler/plan/step_plan.h"
#include "scheduler/search/step_search.h"
#include "server/planning/plan_costs.h"
#include "server/planning/plan_search.h"
#include "tests/bench/model_inputs.h"

namespace roundhouse::bench {
namespace {

// The tokens of a micro-batch: four rows of 64 (job.yaml).
constexpr int64_t kTokens = 4 * 64;
constexpr int kSteps = 8;
// GB/s; of copies that lie in caches.
constexpr double kLinkRate = 5;

Machine MachineOf(const StepSamples& samples) {
  Machine machine;
  machine.devices.resize(samples.devices.size());
  machine.link_rate = kLinkRate;
  machine.links_share_host_rate = false;
  return machine;
}

ForecastQuestion QuestionOf(const ModelCosts& costs,
                            const StepSamples& samples) {
  ForecastQuestion question;
  question.costs = costs;
  question.machine = MachineOf(samples);
  question.micro_batches = kQuickstartMicroBatches;
  question.groups = kQuickstartMicroBatches;
  question.steps = kSteps;
  return question;
}

void Scale(double factor, ModelCosts& costs) {
  for (int64_t* ns : {&costs.forward_ns, &costs.backward_ns,
                      &costs.head_forward_ns, &costs.head_backward_ns}) {
    *ns = std::llround(factor * static_cast<double>(*ns));
  }
}

}  // namespace

absl::StatusOr<ModelCosts> QuickstartCosts(const std::string& config_json,
                                           const StepSamples& samples) {
  TrainedModel model;
  ASSIGN_OR_RETURN(model.config, ParseModelConfig(config_json, "config.json"));
  CostModel measured(LayerBytes(model));
  // The first step's are dropped.
  for (int step = 0; step < 2; ++step) {
    for (size_t layer = 0; layer < samples.layers.size(); ++layer) {
      const LayerTimes& times = samples.layers[layer];
      if (times.backward_ns <= 0) continue;
      const int index = static_cast<int>(layer);
      RETURN_IF_ERROR(measured.Observe(index, LayerPass::kRecompute,
                                       absl::Nanoseconds(times.forward_ns)));
      RETURN_IF_ERROR(measured.Observe(index, LayerPass::kBackward,
                                       absl::Nanoseconds(times.backward_ns)));
    }
    measured.EndStep();
  }
  if (!measured.training_measured()) {
    return absl::InvalidArgumentError("a layer of the model has no times");
  }
  return MeasuredCosts(measured, model, kTokens);
}

absl::StatusOr<RealTimeForecast> ForecastQuickstart(
    const ModelCosts& costs, const Plan& plan, const StepSamples& samples) {
  ForecastQuestion question = QuestionOf(costs, samples);
  question.plan = plan;
  ASSIGN_OR_RETURN(const RealTimeForecast any_rate, Forecast(question));
  double computed_ms = 0;
  for (const DeviceShares& device : samples.devices) {
    computed_ms += device.compute * samples.step_seconds * 1e3;
  }
  const double of_layers_ms = any_rate.step_ms *
                              (1 - any_rate.bubble_percent / 100) *
                              static_cast<double>(samples.devices.size());
  Scale(computed_ms / of_layers_ms, question.costs);
  question.machine.host_rate =
      any_rate.host_bytes / (samples.host_busy * samples.step_seconds * 1e9);
  return Forecast(question);
}

absl::StatusOr<std::string> SearchedQuickstartPlan(const ModelCosts& costs,
                                                   const StepSamples& samples) {
  SearchOptions search;
  search.contributions = Contributions::kFp32;
  search.updates = Updates::kClipped;
  search.groups = kQuickstartMicroBatches;
  search.most_look_ahead = 1;
  search.fused = FusedSlots::kByLayer;
  ASSIGN_OR_RETURN(const SearchResult found,
                   SearchStepPlan(costs, MachineOf(samples),
                                  kQuickstartMicroBatches, search));
  return PlanJson(PlanOfFullRound(found.plan, kQuickstartMicroBatches));
}

}  // namespace roundhouse::bench
