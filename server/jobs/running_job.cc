#include "server/jobs/running_job.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "nlohmann/json.hpp"
#include "server/run/evaluations.h"

namespace roundhouse {
namespace {

constexpr double kSmoothing = 0.9;

double SecondsSince(int64_t ns) {
  return static_cast<double>(MonotonicNs() - ns) * 1e-9;
}

}  // namespace

void RunningJob::SetData(std::unique_ptr<Dataset> train,
                         std::unique_ptr<Dataset> validation) {
  train_ = std::move(train);
  validation_ = std::move(validation);
}

// Nothing but the log is written meanwhile.
void RunningJob::KeepLines(const RunningReport& report) {
  kept_ = Kept();
  const absl::Status metrics = files_->KeepMetricsUpTo(
      report.step, report.evaluated_step,
      [this](const nlohmann::json& metric) { kept_.Take(metric); });
  absl::Status samples = files_->SetSamples(report.samples);
  if (samples.ok() && report.has_prompts) samples = files_->OpenSamples();
  for (const absl::Status& status : {metrics, samples}) {
    if (!status.ok()) kept_.notes.emplace_back(status.message());
  }
}

void RunningJob::OnRunning(const RunningReport& report) {
  Kept kept = std::exchange(kept_, Kept());
  losses_ = std::move(kept.losses);
  validation_losses_ = std::move(kept.validation_losses);
  for (const std::string& note : kept.notes) OnNote(note);
  progress_.step = report.step;
  progress_.total_steps = report.total_steps;
  // Steps that a crash undid are done, and counted, again.
  progress_.tokens = report.tokens;
  world_.store.UpdateProgress(id_, progress_);
  StepsBegin();
  world_.changed(id_, JobState::kRunning);
  telemetry_.StartCounting();
  loading_seconds_ = SecondsSince(begun_ns_);
}

// Slots of the next step are done when a step is reduced, of each about as
// much: so from the first one on.
double RunningJob::step_device_seconds() const {
  if (!first_step_.has_value() || progress_.step <= *first_step_) return 0;
  const auto ns = static_cast<double>(device_ns() - first_device_ns_);
  return ns * 1e-9 / static_cast<double>(progress_.step - *first_step_);
}

int64_t RunningJob::last_step() const {
  if (runner_->finishing()) return runner_->FinishStep();
  return progress_.total_steps > 0 ? progress_.total_steps : steps_;
}

double RunningJob::age_seconds() const { return SecondsSince(begun_ns_); }

double RunningJob::ending_seconds() const {
  return last_step_ns_ == 0 ? 0 : SecondsSince(last_step_ns_);
}

// Takes a line that an earlier life of the job wrote.
void RunningJob::Kept::Take(const nlohmann::json& metric) {
  for (const auto& [key, curve] :
       {std::pair("loss", &losses),
        std::pair("eval_loss", &validation_losses)}) {
    const auto loss = metric.find(key);
    if (loss != metric.end() && loss->is_number()) {
      curve->Add(metric["step"], *loss);
    }
  }
}

void RunningJob::StepsBegin() {
  has_steps_ = true;
  world_.steps_changed();
}

void RunningJob::StepsEnd() {
  has_steps_ = false;
  world_.steps_changed();
}

void RunningJob::OnStep(const StepReport& report) {
  world_.recorder.OnStepReduced(id_, report.step, MonotonicNs());
  // What devices wait for from now on never comes.
  if (report.step == progress_.total_steps) StepsEnd();
  if (world_.samples != nullptr) {
    world_.samples->AddStep(report.step, MonotonicNs());
  }
  progress_.step = report.step;
  if (!first_step_.has_value()) {
    first_step_ = report.step;
    first_device_ns_ = device_ns();
  }
  progress_.epoch = report.epoch;
  progress_.tokens += report.tokens;
  progress_.loss = report.loss;
  progress_.learning_rate = report.learning_rate;
  progress_.grad_norm = report.grad_norm;
  if (!report.experts.empty()) {
    progress_.expert_load = SummaryOf(report.experts);
  }
  seconds_per_step_ =
      seconds_per_step_ == 0
          ? report.seconds
          : kSmoothing * seconds_per_step_ + (1 - kSmoothing) * report.seconds;
  if (report.seconds > 0) {
    progress_.tokens_per_second =
        static_cast<double>(report.tokens) / report.seconds;
  }
  progress_.eta =
      WallTime() +
      absl::Seconds(seconds_per_step_ *
                    static_cast<double>(progress_.total_steps - report.step));
  UpdateProgress();
  losses_.Add(report.step, report.loss);
  nlohmann::json metric = {{"step", report.step},
                           {"loss", report.loss},
                           {"learning_rate", report.learning_rate},
                           {"epoch", report.epoch},
                           {"tokens", report.tokens},
                           {"step_seconds", report.seconds}};
  if (report.grad_norm.has_value()) metric["grad_norm"] = *report.grad_norm;
  if (report.loss_scale.has_value()) metric["loss_scale"] = *report.loss_scale;
  if (!report.experts.empty()) {
    metric["expert_load"] = ExpertLoadToJson(*progress_.expert_load);
    world_.metrics.SetJobExperts(id_, report.experts);
  }
  files_->Metric(metric.dump());
  LogStep(report);
  world_.metrics.SetJobLoss(id_, report.loss);
  world_.metrics.AddJobSteps(id_, 1);
  world_.metrics.AddJobTokens(id_, report.tokens);
  world_.metrics.SetJobEta(id_, *progress_.eta);
  world_.metrics.ObserveStep(absl::Seconds(report.seconds));
}

void RunningJob::LogStep(const StepReport& report) {
  std::string text = absl::StrCat("step ", report.step, "/",
                                  progress_.total_steps, " loss ", report.loss);
  if (report.grad_norm.has_value()) {
    absl::StrAppend(&text, " grad_norm ", *report.grad_norm);
  }
  absl::StrAppend(&text, " lr ", report.learning_rate);
  if (report.loss_scale.has_value()) {
    absl::StrAppend(&text, " loss_scale ", *report.loss_scale);
    world_.metrics.SetJobLossScale(id_, *report.loss_scale);
  }
  if (!report.grad_norm.has_value()) {
    absl::StrAppend(&text, ": skipped, the gradients overflow in fp16");
    world_.metrics.AddJobSkippedSteps(id_, 1);
  }
  files_->Log(text);
}

void RunningJob::OnEvaluation(int64_t step, double loss) {
  const double perplexity = Perplexity(loss);
  validation_losses_.Add(step, loss);
  files_->Metric(nlohmann::json{
      {"step", step}, {"eval_loss", loss}, {"eval_perplexity", perplexity}}
                     .dump());
  OnNote(absl::StrCat("validation after step ", step, ": loss ", loss,
                      ", perplexity ", perplexity));
}

void RunningJob::OnSamples(const EvaluationSamples::Found& found) {
  files_->AddSamples(found.lines);
  for (const EvaluationSample& sample : found.samples) {
    // On one line, whatever it says.
    const std::string text =
        nlohmann::json(sample.completion)
            .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    OnNote(absl::StrCat("after step ", sample.step, " eval_prompts[",
                        sample.prompt, "] is completed by ", text));
  }
}

void RunningJob::OnCheckpoint(const CheckpointReport& report) {
  world_.metrics.ObserveCheckpoint(absl::Seconds(report.seconds));
  CheckpointRecord checkpoint;
  checkpoint.step = report.step;
  checkpoint.path = report.path;
  checkpoint.size_bytes = static_cast<int64_t>(report.bytes);
  checkpoint.create_time = WallTime();
  hold_count_ = 0;
  world_.transitions.Want(id_,
                          absl::StrCat("the checkpoint of step ", report.step),
                          [&store = world_.store, id = id_, checkpoint] {
                            return store.AddCheckpoint(id, checkpoint);
                          });
  OnNote(absl::StrCat("checkpoint of step ", report.step, ": ", report.path));
}

void RunningJob::OnCheckpointFailed(int64_t step, const absl::Status& status) {
  world_.metrics.CountCheckpointFailure();
  OnNote(absl::StrCat("checkpoint of step ", step,
                      " failed: ", std::string(status.message())));
}

void RunningJob::OnCheckpointsLeft(const std::vector<int64_t>& steps) {
  world_.transitions.Want(id_, "which checkpoints are left",
                          [&store = world_.store, id = id_, steps] {
                            return store.KeepCheckpoints(id, steps);
                          });
}

void RunningJob::OnCheckpointCorrupt(const std::string& text) {
  world_.metrics.CountCheckpointFailure();
  OnNote(text);
}

void RunningJob::OnWarning(const std::string& text) {
  OnNote(WarningText(text));
  world_.transitions.Want(
      id_, "a warning", [&store = world_.store, id = id_, text] {
        return store.AddEvent(id, "note", WarningText(text));
      });
}

void RunningJob::OnFinalizing() {
  last_step_ns_ = MonotonicNs();
  StepsEnd();
  UpdateProgress();
  world_.recorder.OnJobStopped(id_, "the job has made its last step",
                               MonotonicNs());
  world_.changed(id_, JobState::kFinalizing);
}

void RunningJob::OnHeld(const HeldReport& report) {
  world_.metrics.CountCheckpointFailure();
  held_ = report;
  ++hold_count_;
  StepsEnd();
  UpdateProgress();
  world_.held(id_, report);
}

void RunningJob::GoOn() {
  const JobState state = held_->state;
  held_.reset();
  const bool steps_left = progress_.step < progress_.total_steps;
  if (state == JobState::kRunning && steps_left) {
    StepsBegin();
  } else {
    StepsEnd();
  }
  if (runner_->resting()) runner_->EndRest();
  if (runner_->held()) runner_->TryAgain();
}

void RunningJob::SetPriority(Priority priority) {
  priority_ = priority;
  runner_->SetPriority(priority);
}

void RunningJob::Rest(absl::Time now) {
  held_ = HeldReport{.reason = JobReason::kNone};
  pause_.rests_since = now;
  StepsEnd();
  UpdateProgress();
  runner_->Rest();
}

void RunningJob::Spill() {
  held_.reset();
  pause_.spilled = true;
  runner_->Pause();
}

void RunningJob::OnFinished(const JobOutcome& outcome) {
  UpdateProgress();
  // The last thing: it may not touch this object any more.
  world_.finished(id_, outcome);
}

void RunningJob::UpdateProgress() {
  if (telemetry_.counts()) progress_.device_use = telemetry_.device_use();
  world_.store.UpdateProgress(id_, progress_);
}

}  // namespace roundhouse
