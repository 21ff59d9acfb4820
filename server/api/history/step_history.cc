#include "server/api/history/step_history.h"

#include <cmath>
#include <deque>
#include <fstream>

#include "nlohmann/json.hpp"
#include "server/api/convert.h"
#include "server/store/store_records.h"

namespace roundhouse {
namespace {

using Json = nlohmann::json;

std::optional<double> Number(const Json& in, const char* key) {
  const auto found = in.find(key);
  if (found == in.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

// Drops what a rewind to before `step` made stale.
template <typename Point>
void Rewind(std::deque<Point>* points, int64_t step) {
  while (!points->empty() && points->back().step() >= step) points->pop_back();
}

void AddLoss(const v1::StepMetrics& m, std::deque<v1::LossPoint>* losses) {
  Rewind(losses, m.step());
  v1::LossPoint point;
  point.set_step(m.step());
  point.set_loss(m.loss());
  losses->push_back(point);
  if (losses->size() > kMaxHistoryPoints) losses->pop_front();
}

void AddEval(const v1::StepMetrics& m, std::deque<v1::EvalPoint>* evals) {
  Rewind(evals, m.step());
  v1::EvalPoint point;
  point.set_step(m.step());
  point.set_loss(m.eval_loss());
  point.set_perplexity(m.has_eval_perplexity() ? m.eval_perplexity()
                                               : std::exp(m.eval_loss()));
  evals->push_back(point);
  if (evals->size() > kMaxHistoryPoints) evals->erase(evals->begin() + 1);
}

}  // namespace

std::optional<v1::StepMetrics> ParseMetricsLine(const std::string& line) {
  if (line.size() > kMaxMetricsLineBytes) return std::nullopt;
  const Json in = Json::parse(line, nullptr, false);
  if (!in.is_object()) return std::nullopt;
  const auto step = in.find("step");
  if (step == in.end() || !step->is_number_integer()) return std::nullopt;
  v1::StepMetrics out;
  out.set_step(step->get<int64_t>());
  if (const auto v = Number(in, "loss")) out.set_loss(*v);
  if (const auto v = Number(in, "learning_rate")) out.set_learning_rate(*v);
  if (const auto v = Number(in, "grad_norm")) out.set_grad_norm(*v);
  if (const auto v = Number(in, "loss_scale")) out.set_loss_scale(*v);
  const auto experts = in.find("expert_load");
  if (experts != in.end()) {
    const auto load = ExpertLoadFromJson(*experts);
    if (load.has_value()) *out.mutable_expert_load() = ToProto(*load);
  }
  if (const auto v = Number(in, "epoch")) out.set_epoch(*v);
  if (const auto v = Number(in, "step_seconds")) out.set_step_seconds(*v);
  if (const auto v = Number(in, "eval_loss")) out.set_eval_loss(*v);
  if (const auto v = Number(in, "eval_perplexity")) {
    out.set_eval_perplexity(*v);
  }
  const auto tokens = in.find("tokens");
  if (tokens != in.end() && tokens->is_number_integer()) {
    out.set_tokens(tokens->get<int64_t>());
  }
  if (!out.has_loss() && !out.has_eval_loss()) return std::nullopt;
  return out;
}

absl::StatusOr<StepHistory> ReadStepHistory(const std::string& path) {
  std::deque<std::string> steps;  // Only the last ones are worth parsing.
  std::deque<v1::LossPoint> losses;
  std::deque<v1::EvalPoint> evals;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.find("\"eval_loss\"") == std::string::npos) {
      steps.push_back(std::move(line));
      if (steps.size() > 2 * kMaxHistoryPoints) steps.pop_front();
    } else if (const auto metrics = ParseMetricsLine(line)) {
      AddEval(*metrics, &evals);
    }
  }
  if (file.bad()) return absl::InternalError("reading the step metrics");
  for (const std::string& line : steps) {
    if (const auto metrics = ParseMetricsLine(line)) AddLoss(*metrics, &losses);
  }
  return StepHistory{{losses.begin(), losses.end()},
                     {evals.begin(), evals.end()}};
}

}  // namespace roundhouse
