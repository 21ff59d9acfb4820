#include "server/run/job_history.h"

#include <limits>
#include <utility>

#include "nlohmann/json.hpp"
#include "server/store/store_records.h"
#include "server/weights/checkpoint.h"

namespace roundhouse {

JobHistory::JobHistory(const JobSpec& spec, int64_t steps_per_epoch,
                       std::string directory)
    : spec_(spec),
      steps_per_epoch_(steps_per_epoch),
      directory_(std::move(directory)) {}

void JobHistory::GoOnFrom(const nlohmann::json& trainer_state, int64_t step,
                          int64_t tokens) {
  tokens_trained_ = tokens;
  for (const auto& entry :
       trainer_state.value("log_history", nlohmann::json::array())) {
    if (!entry.is_object() || !entry.contains("step") ||
        !entry["step"].is_number_integer() || entry["step"] > step) {
      continue;
    }
    entries_.push_back(entry.dump());
  }
}

double JobHistory::Epoch(int64_t step) const {
  return static_cast<double>(step) / static_cast<double>(steps_per_epoch_);
}

void JobHistory::AddStep(const StepReport& report, int64_t last_step) {
  tokens_trained_ += report.tokens;
  since_entry_.sum += report.loss;
  ++since_entry_.steps;
  if (report.step % spec_.logging_steps != 0 && report.step != last_step) {
    return;
  }
  nlohmann::json line = {
      {"step", report.step},
      {"epoch", report.epoch},
      {"loss", since_entry_.sum / static_cast<double>(since_entry_.steps)},
      {"learning_rate", report.learning_rate}};
  if (report.grad_norm.has_value()) line["grad_norm"] = *report.grad_norm;
  if (report.loss_scale.has_value()) line["loss_scale"] = *report.loss_scale;
  if (!report.experts.empty()) {
    line["expert_load"] = ExpertLoadToJson(SummaryOf(report.experts));
  }
  entries_.push_back(line.dump());
  since_entry_ = {};
}

void JobHistory::AddEvaluation(const Evaluation& evaluation) {
  entries_.push_back(
      nlohmann::json{{"step", evaluation.step},
                     {"epoch", Epoch(evaluation.step)},
                     {"eval_loss", evaluation.loss},
                     {"eval_perplexity", Perplexity(evaluation.loss)}}
          .dump());
}

std::vector<Evaluation> JobHistory::FoundEvaluations() const {
  std::vector<Evaluation> found;
  for (const std::string& text : entries_) {
    const auto entry = nlohmann::json::parse(text);
    if (!entry.contains("eval_loss")) continue;
    const auto& loss = entry["eval_loss"];
    found.push_back({entry["step"], loss.is_number()
                                        ? loss.get<double>()
                                        : std::numeric_limits<double>::max()});
  }
  return found;
}

std::string JobHistory::TrainerState(
    const StepMarks& marks, const std::optional<Evaluation>& best) const {
  nlohmann::json entries = nlohmann::json::array();
  for (const std::string& entry : entries_) {
    entries.push_back(nlohmann::json::parse(entry));
  }
  nlohmann::json state = {{"global_step", marks.completed},
                          {"max_steps", marks.total},
                          {"epoch", Epoch(marks.completed)},
                          {"num_train_epochs", spec_.num_train_epochs},
                          {"train_batch_size", spec_.batch_size},
                          {"logging_steps", spec_.logging_steps},
                          {"eval_steps", spec_.eval_steps},
                          {"save_steps", spec_.save_steps},
                          {"best_global_step", nullptr},
                          {"best_metric", nullptr},
                          {"best_model_checkpoint", nullptr},
                          {"log_history", entries}};
  if (best.has_value()) {
    state["best_global_step"] = best->step;
    state["best_metric"] = best->loss;
    if (spec_.load_best_model_at_end) {
      state["best_model_checkpoint"] = CheckpointPath(directory_, best->step);
    }
  }
  return state.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) +
         "\n";
}

}  // namespace roundhouse
