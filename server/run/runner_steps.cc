// JobRunner: steps, and evaluations between them.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "server/run/runner.h"

namespace roundhouse {

void JobRunner::BeginNext() {
  if (!phase_.stepping() || resting_) return;
  ROUNDHOUSE_CHECK(book_.idle()) << "step " << marks_.begun;
  if (evaluations_.Due()) {
    evaluations_.Begin();
  } else if (marks_.begun < evaluations_.EndStep()) {
    BeginSteps();
  } else {
    BeginFinal();
  }
}

// A step or an evaluation has ended, and what follows it at once has begun.
void JobRunner::GoOn() {
  if (phase_.finished()) return;  // a save or an export failed at once
  if (phase_.ending()) {
    // What was begun after the step that had to end need not end.
    if (phase_.letting_end()) return Stop(JobOutcome(phase_.outcome()));
    if (book_.idle()) phase_.BeQuiet();
    AfterQuiet();
    return;
  }
  const bool waits = saver_.saving() || evaluations_.sampling();
  if (!waits && book_.idle()) BeginNext();
}

bool JobRunner::SaveDue() const {
  const int64_t step = marks_.begun;
  if (step == 0 || step == saver_.saved_step()) return false;
  const bool periodic = spec().save_steps > 0 && step % spec().save_steps == 0;
  return periodic || step >= evaluations_.EndStep();
}

// As many as the dispatcher takes, so that a device has its first slots of a
// step while it computes the last ones of the step before.  An evaluation waits
// for the last update, another plan and a loss scale for the last gradient.
void JobRunner::BeginSteps() {
  if (writer_.held() || resting_) return;  // those that are begun end first
  const int64_t most = memory_.state().options().stale ? 4 : 2;
  while (marks_.begun < evaluations_.EndStep() && !evaluations_.Due() &&
         marks_.begun - marks_.completed < most &&
         (marks_.begun == marks_.reduced ||
          !(adviser_->found() || updates_.scales_loss()))) {
    BeginTrainStep();
  }
}

void JobRunner::BeginTrainStep() {
  const int64_t step = ++marks_.begun;
  StepEntry entry =
      maker_.Train(step, memory_.buffers().options().micro_batches);
  entry.data.update = updates_.Begin(step);
  entry.data.loss_scale = updates_.loss_scale();
  const size_t units = memory_.state().units().size();
  entry.unit_norms.assign(units, 0.0);
  entry.unit_ns.assign(units, 0);
  // Where an evaluation follows, the checkpoint comes after it and has it.
  entry.save_after = SaveDue() && !evaluations_.Due();
  Begin(std::move(entry));
}

void JobRunner::BeginEvaluation() {
  Begin(maker_.Evaluate(marks_.completed,
                        memory_.buffers().options().micro_batches));
}

void JobRunner::Begin(StepEntry entry) {
  StepSpec step;
  step.step = static_cast<uint64_t>(entry.data.step);
  step.train = entry.data.train;
  step.clip = entry.data.train && updates_.wait_for_norm();
  step.plan = memory_.plan();
  step.groups = static_cast<int>(options_.spec.gradient_groups());
  for (const RoundData& round : entry.data.rounds) {
    step.round_micro_batches.push_back(
        static_cast<int>(round.micro_batches.size()));
  }
  step.blocks = memory_.buffers().contributions().blocks();
  step.boundary_blocks = memory_.buffers().block_count();
  step.layer_costs = adviser_->LayerCosts();
  const uint64_t number = book_.Enter(std::move(entry));
  HoldForNextSave();
  book_.Begin(number, step);
}

// A save reads what its step left.
void JobRunner::HoldForNextSave() {
  if (!saver_.saving() && book_.open()) book_.HoldForNextSave();
}

void JobRunner::OnStepReduced(uint64_t number, StepEntry& entry) {
  const LossSum loss = SumLoss(entry);
  double squares = 0;
  for (double unit : entry.unit_norms) squares += unit;
  const std::optional<double> norm =
      updates_.EndStep(squares, entry.data.loss_scale, &entry.data.update);
  const bool skip = !norm.has_value() && updates_.scales_loss();
  if (!loss.finite || !(norm.has_value() || skip) || updates_.exhausted()) {
    FailNonFinite(entry, loss.finite ? "gradient norm" : "loss");
    return;
  }
  Report(entry, loss.mean, norm);
  adviser_->EndStep();
  if (skip) {
    maker_.Skip(entry);
    dispatcher().SkipUpdates(id(), number);
  } else if (updates_.wait_for_norm()) {
    dispatcher().AllowUpdates(id(), number);
  }
  if (phase_.ending()) return;
  marks_.reduced = entry.data.step;
  adviser_->Review(marks_);
  BeginSteps();
}

void JobRunner::OnLossNotFinite(const StepEntry& entry) {
  FailNonFinite(entry, "loss");
}

void JobRunner::OnWorkerFailed(JobReason reason, const std::string& text) {
  Fail(reason, text);
}

void JobRunner::FailNonFinite(const StepEntry& entry, const std::string& what) {
  const std::string when =
      entry.data.train
          ? absl::StrCat("step ", entry.data.step)
          : absl::StrCat("evaluation after step ", entry.data.step);
  const std::string scale =
      updates_.exhausted()
          ? absl::StrCat(" at the lowest loss scale, ", entry.data.loss_scale)
          : "";
  Fail(JobReason::kNonFiniteLoss,
       absl::StrCat(when, ": the ", what, " is not finite (NaN or infinity)",
                    scale));
}

void JobRunner::Report(const StepEntry& entry, double loss,
                       std::optional<double> norm) {
  const int64_t now = MonotonicNs();
  const int64_t since = std::max(last_step_ns_, entry.begun_ns);
  last_step_ns_ = now;
  StepReport report;
  report.step = entry.data.step;
  report.loss = loss;
  report.learning_rate = entry.data.update.learning_rate;
  report.grad_norm = norm;
  if (updates_.scales_loss()) report.loss_scale = entry.data.loss_scale;
  report.epoch = history_.Epoch(entry.data.step);
  report.tokens = entry.data.target_tokens;
  report.seconds = static_cast<double>(now - since) * 1e-9;
  report.experts = entry.experts.Loads();
  history_.AddStep(report, evaluations_.EndStep());
  book_.ReportStep(report);
}

void JobRunner::OnStepDone(const StepEntry& entry) {
  if (entry.data.train) {
    marks_.completed = entry.data.step;
    const bool last = marks_.begun == marks_.completed;
    const bool save =
        last ? SaveDue() && !evaluations_.Due() : entry.save_after;
    if (save && !phase_.ending()) SaveAndGoOn();
    if (!phase_.ending() && !book_.idle()) BeginSteps();
  } else {
    const LossSum loss = SumLoss(entry);
    if (loss.finite) {
      evaluations_.OnValidated(loss.mean);
    } else {
      FailNonFinite(entry, "validation loss");
    }
    if (!book_.open()) return;  // it failed the job
  }
  GoOn();
}

void JobRunner::OnQuiet() {
  phase_.BeQuiet();
  AfterQuiet();
}

void JobRunner::EndEvaluation(EvaluationCycle::Loss loss) {
  const bool keep_best = loss == EvaluationCycle::Loss::kBest &&
                         spec().load_best_model_at_end &&
                         marks_.completed != saver_.saved_step();
  if (keep_best || SaveDue()) SaveAndGoOn();
}

}  // namespace roundhouse
