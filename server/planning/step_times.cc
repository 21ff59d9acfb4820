#include "server/planning/step_times.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include "nlohmann/json.hpp"

namespace roundhouse {
namespace {

// A field that is not here may change what a step costs.
constexpr const char* kOtherFields[] = {"num_train_epochs",
                                        "max_steps",
                                        "learning_rate",
                                        "lr_scheduler_type",
                                        "warmup_ratio",
                                        "warmup_steps",
                                        "weight_decay",
                                        "adam_beta1",
                                        "adam_beta2",
                                        "adam_epsilon",
                                        "lora_alpha",
                                        "seed",
                                        "logging_steps",
                                        "save_steps",
                                        "save_total_limit",
                                        "eval_steps",
                                        "output_name",
                                        "metadata",
                                        "template_date",
                                        "validation_dataset",
                                        "validation_split",
                                        "model_init",
                                        "early_stopping_patience",
                                        "load_best_model_at_end",
                                        "resume_from_checkpoint",
                                        "adapter_name_or_path"};

nlohmann::json StepWork(const std::string& resolved) {
  auto spec = nlohmann::json::parse(resolved, nullptr, false);
  if (!spec.is_object()) return nullptr;
  for (const char* field : kOtherFields) spec.erase(field);
  return spec;
}

// -1: the line is no step.
double StepSeconds(const std::string& line) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object()) return -1;
  const auto seconds = json.find("step_seconds");
  if (seconds == json.end() || !seconds->is_number()) return -1;
  return seconds->get<double>();
}

}  // namespace

std::string StepWorkOf(const std::string& resolved) {
  const nlohmann::json work = StepWork(resolved);
  return work.is_null() ? "" : work.dump();
}

bool SameStepWork(const std::string& resolved, const std::string& other) {
  const nlohmann::json work = StepWork(resolved);
  return !work.is_null() && work == StepWork(other);
}

std::optional<double> MeasuredStepSeconds(const std::string& metrics_path) {
  std::ifstream file(metrics_path, std::ios::binary | std::ios::ate);
  if (!file.is_open()) return std::nullopt;
  const auto bytes = static_cast<int64_t>(file.tellg());
  file.seekg(std::max<int64_t>(0, bytes - kMeasuredTailBytes));
  double sum = 0;
  int steps = 0;
  // The first line may be half of one, which is no JSON.
  for (std::string line; std::getline(file, line);) {
    const double seconds = StepSeconds(line);
    if (!(seconds > 0)) continue;
    sum += seconds;
    ++steps;
  }
  if (steps < kFewestMeasuredSteps || !std::isfinite(sum)) return std::nullopt;
  return sum / steps;
}

}  // namespace roundhouse
