#include "server/run/evaluation_cycle.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace roundhouse {

EvaluationCycle::EvaluationCycle(const Surroundings& around,
                                 const RunnerOptions& options, Calls calls)
    : around_(around),
      calls_(std::move(calls)),
      evaluations_({options.validation != nullptr,
                    options.spec.spec().eval_steps,
                    options.spec.spec().early_stopping_patience}),
      samples_(around.loop, around.arena, around.pool,
               {.job = options.job,
                .model = options.model.config,
                .prompts = options.spec.spec().eval_prompts,
                .eval_steps = options.spec.spec().eval_steps,
                .text = options.text,
                .computed = calls_.computed}) {}

int64_t EvaluationCycle::EndStep() const {
  return evaluations_.OutOfPatience() ? around_.marks.begun
                                      : around_.marks.last();
}

bool EvaluationCycle::Due() const {
  const int64_t step = around_.marks.begun;
  const bool last = step >= EndStep();
  return evaluations_.DueAfter(step, last) || samples_.DueAfter(step, last);
}

void EvaluationCycle::Begin() {
  const int64_t step = around_.marks.begun;
  if (evaluations_.DueAfter(step, step >= EndStep())) {
    calls_.validate();
  } else {
    BeginSamples(std::exchange(before_rest_, Loss::kOther));
  }
}

void EvaluationCycle::OnValidated(double loss) {
  const Evaluation evaluation{around_.marks.completed, loss};
  const bool best = evaluations_.Add(evaluation);
  around_.history.AddEvaluation(evaluation);
  around_.events.OnEvaluation(evaluation.step, loss);
  if (!calls_.ending()) BeginSamples(best ? Loss::kBest : Loss::kOther);
}

void EvaluationCycle::BeginSamples(Loss loss) {
  const int64_t step = around_.marks.completed;
  if (!samples_.DueAfter(step, step >= EndStep())) {
    calls_.over(loss);
    return;
  }
  if (calls_.resting()) {
    before_rest_ = loss;
    return;
  }
  samples_.Begin(
      step, calls_.units(),
      [this, loss](const absl::StatusOr<EvaluationSamples::Found>& found) {
        AfterSamples(loss, found);
      });
}

// Samples are for people to look at: what is in their way costs them, never the
// job.
void EvaluationCycle::AfterSamples(
    Loss loss, const absl::StatusOr<EvaluationSamples::Found>& found) {
  const bool ending = calls_.ending();
  if (found.ok()) {
    for (const int prompt : found->control_tokens) {
      around_.events.OnWarning(absl::StrCat(
          "eval_prompts[", prompt,
          "]: has special tokens of the tokenizer in its text; the model reads "
          "them as control tokens"));
    }
    around_.events.OnSamples(*found);
  } else if (!ending) {
    around_.events.OnWarning(
        absl::StrCat("no samples after step ", around_.marks.completed, ": ",
                     std::string(found.status().message())));
  }
  if (!ending) calls_.over(loss);
  calls_.sampled();
}

void EvaluationCycle::GoOnFrom(const nlohmann::json& trainer_state, bool own,
                               const std::string& samples) {
  samples_.GoOnFrom(samples, around_.marks.completed);
  if (own) samples_.FirstAreOver();
  EvaluationStart known;
  known.base_step = around_.marks.base;
  const auto step = trainer_state.find("best_global_step");
  const auto loss = trainer_state.find("best_metric");
  if (own && step != trainer_state.end() && step->is_number_integer() &&
      loss != trainer_state.end() && loss->is_number()) {
    known.best = {step->get<int64_t>(), loss->get<double>()};
  }
  for (const Evaluation& evaluation : around_.history.FoundEvaluations()) {
    known.evaluated_step = std::max(known.evaluated_step, evaluation.step);
    if (known.best.has_value() && evaluation.step > known.best->step) {
      ++known.since_best;
    }
  }
  evaluations_.GoOnFrom(known);
}

}  // namespace roundhouse
