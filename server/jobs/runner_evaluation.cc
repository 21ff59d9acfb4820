// JobRunner: evaluations, and how the job ends.
#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "server/jobs/runner.h"
#include "server/sample/sampling_state.h"

namespace roundhouse {

// --- evaluations ---

// The step after which none begins, as far as is known now.
int64_t JobRunner::EndStep() const {
  if (evaluations_.OutOfPatience()) return begun_step_;
  return std::min(total_steps_, finish_step_.value_or(total_steps_));
}

bool JobRunner::EvaluationDue() const {
  const bool last = begun_step_ >= EndStep();
  return evaluations_.DueAfter(begun_step_, last) ||
         samples_.DueAfter(begun_step_, last);
}

bool JobRunner::SaveDue() const {
  const int64_t step = begun_step_;
  if (step == 0 || step == saved_step_) return false;
  const bool periodic = spec().save_steps > 0 && step % spec().save_steps == 0;
  return periodic || step >= EndStep();
}

void JobRunner::BeginEvaluation() {
  if (!evaluations_.DueAfter(begun_step_, begun_step_ >= EndStep())) {
    BeginSamples(false);
    return;
  }
  std::vector<int64_t> all(options_.validation->counts().rows);
  std::iota(all.begin(), all.end(), 0);
  StepEntry entry =
      MakeStep(false, CutMicroBatches(*options_.validation, all,
                                      options_.spec.micro_batch_size()));
  entry.data.step = completed_step_;
  Begin(std::move(entry), false);
}

void JobRunner::AfterEvaluation(const StepEntry& entry) {
  const LossSum loss = SumLoss(entry);
  if (!loss.finite) {
    FailNonFinite(entry, "validation loss");
    return;
  }
  const bool best = evaluations_.Add({completed_step_, loss.mean});
  const double epoch = static_cast<double>(completed_step_) /
                       static_cast<double>(order_.steps_per_epoch());
  history_.push_back(nlohmann::json{{"step", completed_step_},
                                    {"epoch", epoch},
                                    {"eval_loss", loss.mean},
                                    {"eval_perplexity", Perplexity(loss.mean)}}
                         .dump());
  listener_->OnEvaluation(completed_step_, loss.mean);
  if (!outcome_.has_value()) BeginSamples(best);
}

// The losses are known and the dispatcher is drained: the arena holds the
// weights of completed_step_ until BeginNext.
void JobRunner::BeginSamples(bool best) {
  if (!samples_.DueAfter(completed_step_, completed_step_ >= EndStep())) {
    EndEvaluation(best);
    return;
  }
  samples_.Begin(
      completed_step_,
      SampleUnits(
          options_.model.config, state_->options().adapter,
          [this](int unit) { return state_->Weights(unit, completed_step_); },
          [this](int unit) { return state_->Version(unit, version_); }),
      [this, best](const absl::StatusOr<EvaluationSamples::Found>& found) {
        AfterSamples(best, found);
      });
}

// Samples are for people to look at: what is in their way costs them, never the
// job.
void JobRunner::AfterSamples(
    bool best, const absl::StatusOr<EvaluationSamples::Found>& found) {
  const bool stopping = outcome_.has_value();
  if (found.ok()) {
    for (const int prompt : found->control_tokens) {
      listener_->OnWarning(absl::StrCat(
          "eval_prompts[", prompt,
          "]: has special tokens of the tokenizer in its text; the model reads "
          "them as control tokens"));
    }
    listener_->OnSamples(*found);
  } else if (!stopping) {
    listener_->OnWarning(absl::StrCat("no samples after step ", completed_step_,
                                      ": ",
                                      std::string(found.status().message())));
  }
  if (!stopping) EndEvaluation(best);
  GoOn();
  CarryOut();
}

void JobRunner::EndEvaluation(bool best) {
  const bool keep_best =
      best && spec().load_best_model_at_end && completed_step_ != saved_step_;
  if (keep_best || SaveDue()) SaveAndGoOn();
}

// What a checkpoint's history says of them; the best one only where it is of
// this job, which then has a checkpoint of it.
void JobRunner::EvaluationsFrom(const nlohmann::json& state,
                                const StartPoint& start) {
  EvaluationStart known;
  known.base_step = base_step_;
  const auto step = state.find("best_global_step");
  const auto loss = state.find("best_metric");
  if (start.own && step != state.end() && step->is_number_integer() &&
      loss != state.end() && loss->is_number()) {
    known.best = {step->get<int64_t>(), loss->get<double>()};
  }
  for (const std::string& text : history_) {
    const auto entry = nlohmann::json::parse(text);
    if (!entry.contains("eval_loss")) continue;
    const int64_t evaluated = entry["step"];
    known.evaluated_step = std::max(known.evaluated_step, evaluated);
    if (known.best.has_value() && evaluated > known.best->step) {
      ++known.since_best;
    }
  }
  evaluations_.GoOnFrom(known);
}

// --- the end ---

int64_t JobRunner::FinishStep() const {
  return finish_step_.value_or(std::max(begun_step_, base_step_ + 1));
}

void JobRunner::BeginFinal() {
  phase_ = Phase::kFinalizing;
  listener_->OnFinalizing();
  EndWithBest();
}

void JobRunner::EndWithBest() {
  const std::optional<Evaluation>& best = evaluations_.best();
  if (spec().load_best_model_at_end && best.has_value() &&
      best->step != completed_step_) {
    LoadBest(best->step);
  } else {
    Export();
  }
}

void JobRunner::LoadBest(int64_t step) {
  const std::string path = CheckpointPath(options_.directory, step);
  auto parts = std::make_shared<std::vector<FilePart>>();
  InBackground(
      [this, path, step, parts]() -> absl::Status {
        RETURN_IF_ERROR(ReadCheckpoint(*options_.files, path, true).status());
        ASSIGN_OR_RETURN(*parts, PartsOf(path, step));
        return absl::OkStatus();
      },
      [this, step, parts](absl::Status status) {
        if (outcome_.has_value()) return;  // AfterQuiet finishes
        if (MayPass(status)) {
          Stop(OutcomeOf(status));
        } else if (!status.ok()) {
          LoseBest(step, status);
        } else {
          best_in_arena_ = step;
          RunParts({wire::FileOpKind::kLoad, *parts, nullptr},
                   [this](absl::Status loaded) { OnBestLoaded(loaded); });
        }
      });
}

// The best of the models that there still are is the result, and the job
// says which and why.
void JobRunner::LoseBest(int64_t step, const absl::Status& why) {
  std::vector<int64_t> steps = ListCheckpointSteps(options_.directory);
  std::erase(steps, step);
  steps.push_back(completed_step_);  // in the arena
  std::optional<Evaluation> next;
  for (const std::string& text : history_) {
    const auto entry = nlohmann::json::parse(text);
    if (!entry.contains("eval_loss") || entry["step"] <= base_step_ ||
        std::count(steps.begin(), steps.end(), entry["step"]) == 0) {
      continue;
    }
    if (!next.has_value() || entry["eval_loss"] < next->loss) {
      next = {entry["step"], entry["eval_loss"]};
    }
  }
  lost_best_ = absl::StrCat("load_best_model_at_end: the best model, of step ",
                            step, ", is lost: ", std::string(why.message()));
  listener_->OnCheckpointCorrupt(lost_best_);
  listener_->OnWarning(lost_best_);
  evaluations_.ReplaceBest(next);
  InBackground(
      [path = CheckpointPath(options_.directory, step)] {
        return QuarantineCheckpoint(path);
      },
      [this](absl::Status moved) {
        if (!moved.ok()) listener_->OnNote(std::string(moved.message()));
        if (!outcome_.has_value()) EndWithBest();
      });
}

void JobRunner::OnBestLoaded(const absl::Status& status) {
  if (outcome_.has_value()) return;  // AfterQuiet finishes
  if (status.ok()) {
    Export();
    return;
  }
  if (MayPass(status)) return Stop(OutcomeOf(status));
  Fail(absl::IsResourceExhausted(status) ? JobReason::kHostMemory
                                         : JobReason::kCheckpointCorrupt,
       absl::StrCat("load_best_model_at_end: ", std::string(status.message())));
}

std::string JobRunner::FinalMessage() const {
  std::string text;
  const std::optional<Evaluation>& best = evaluations_.best();
  if (completed_step_ < total_steps_) {
    text = absl::StrCat("stopped after step ", completed_step_, " of ",
                        total_steps_);
    absl::StrAppend(
        &text, evaluations_.OutOfPatience()
                   ? absl::StrCat(": no better eval_loss in ",
                                  evaluations_.since_best(), " evaluations")
                   : " on request");
  }
  if (spec().load_best_model_at_end && best.has_value()) {
    absl::StrAppend(&text, text.empty() ? "" : "; ",
                    "the output is the model of step ", best->step,
                    ", eval_loss ", best->loss);
  }
  if (!lost_best_.empty()) absl::StrAppend(&text, "; ", lost_best_);
  return text;
}

}  // namespace roundhouse
