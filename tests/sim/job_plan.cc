#include "tests/sim/job_plan.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "tests/sim/sim_helpers.h"

namespace roundhouse::sim {
namespace {

using nlohmann::json;

constexpr char kJob[] =
    "model_name_or_path: m\ndataset: d.jsonl\nmax_length: 8\nbatch_size: 4\n";
constexpr int64_t kMostEvalTokens = 64;  // docs/job-spec.md, eval_prompts

void DrawEvaluations(const DrawNumber& draw, JobPlan& plan) {
  plan.validates = draw(100) < 25;
  if (plan.validates) plan.text += "validation_dataset: d.jsonl\n";
  if (draw(100) < 20) {
    plan.prompts = {"abc", "xy"};
    plan.prompts.resize(1 + draw(2));
    absl::StrAppend(&plan.text, "eval_prompts: [",
                    absl::StrJoin(plan.prompts, ", "), "]\n");
  }
  if (!plan.validates && plan.prompts.empty()) return;
  plan.eval_steps = static_cast<int64_t>(draw(4));
  absl::StrAppend(&plan.text, "eval_steps: ", plan.eval_steps, "\n");
  if (plan.validates && plan.eval_steps > 0 && draw(3) == 0) {
    plan.text += "load_best_model_at_end: true\n";
  }
}

// Steps after which evaluations and samples are due.
std::vector<int64_t> DueSteps(const JobPlan& plan, int64_t last_step) {
  std::vector<int64_t> due = {0};
  for (int64_t step = plan.eval_steps; step > 0 && step < last_step;
       step += plan.eval_steps) {
    due.push_back(step);
  }
  if (last_step > 0) due.push_back(last_step);
  return due;
}

absl::StatusOr<std::vector<json>> ReadLines(const std::string& path) {
  std::vector<json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    lines.push_back(json::parse(line, nullptr, false));
    if (lines.back().is_object()) continue;
    return absl::InternalError(absl::StrCat(path, " has the line ", line));
  }
  return lines;
}

absl::Status CheckEvaluations(const JobPlan& plan, const std::string& output,
                              int64_t last_step) {
  ASSIGN_OR_RETURN(const auto lines, ReadLines(output + "/metrics.jsonl"));
  std::vector<int64_t> found;
  for (const json& line : lines) {
    if (line.contains("eval_loss")) found.push_back(line.value("step", -1));
  }
  const std::vector<int64_t> due =
      plan.validates ? DueSteps(plan, last_step) : std::vector<int64_t>();
  if (found == due) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      output, " has evaluations after steps ", absl::StrJoin(found, ", "),
      "; due are ", absl::StrJoin(due, ", ")));
}

// Lines of one step follow each other, one for each prompt.
absl::Status CheckSampleLines(const JobPlan& plan,
                              const std::vector<json>& lines) {
  for (size_t i = 0; i < lines.size(); ++i) {
    const size_t index = i % plan.prompts.size();
    const json& line = lines[i];
    const std::vector<int32_t> tokens =
        CompletionOf(plan.prompts[index], kMostEvalTokens);
    const json right = {{"step", lines[i - index].value("step", -1)},
                        {"index", index},
                        {"prompt", plan.prompts[index]},
                        {"completion", LettersOf(tokens)},
                        {"tokens", tokens}};
    if (line == right) continue;
    return absl::InternalError(
        absl::StrCat("a sample is ", line.dump(), ", not ", right.dump()));
  }
  return absl::OkStatus();
}

absl::Status CheckSamples(const JobPlan& plan, const std::string& output,
                          int64_t last_step,
                          const std::set<int64_t>& unsampled) {
  ASSIGN_OR_RETURN(const auto lines, ReadLines(output + "/samples.jsonl"));
  if (plan.prompts.empty()) {
    return lines.empty() ? absl::OkStatus()
                         : absl::InternalError(output + " has samples");
  }
  RETURN_IF_ERROR(CheckSampleLines(plan, lines));
  std::vector<int64_t> found;
  for (size_t i = 0; i < lines.size(); i += plan.prompts.size()) {
    found.push_back(lines[i].value("step", -1));
  }
  std::vector<int64_t> due = DueSteps(plan, last_step);
  std::erase_if(due, [&](int64_t step) {
    return unsampled.contains(step) &&
           std::find(found.begin(), found.end(), step) == found.end();
  });
  if (found == due && lines.size() == found.size() * plan.prompts.size()) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat(
      output, " has ", lines.size(), " samples, after steps ",
      absl::StrJoin(found, ", "), "; due are ", absl::StrJoin(due, ", ")));
}

}  // namespace

JobPlan DrawJobPlan(const DrawNumber& draw) {
  JobPlan plan;
  plan.steps = 1 + static_cast<int64_t>(draw(8));
  plan.text = absl::StrCat(kJob, "max_steps: ", plan.steps,
                           "\nmicro_batch_size: ", 1 + draw(2),
                           "\nsave_steps: ", 1 + draw(6), "\n");
  plan.adapters = draw(100) < 25;
  if (plan.adapters) {
    absl::StrAppend(&plan.text, "method: lora\nlora_r: ", 1 + draw(8), "\n");
  } else {
    plan.text += "model_init: random\n";
  }
  DrawEvaluations(draw, plan);
  return plan;
}

std::vector<int32_t> CompletionOf(const std::string& prompt, int64_t most) {
  std::vector<int32_t> tokens;
  for (int32_t next = TokensOf(prompt).back() + 1;
       next <= kEndToken && static_cast<int64_t>(tokens.size()) < most;
       ++next) {
    tokens.push_back(next);
  }
  return tokens;
}

std::string LettersOf(const std::vector<int32_t>& tokens) {
  std::string letters;
  for (const int32_t token : tokens) letters += LetterOf(token);
  return letters;
}

absl::Status CheckResult(const JobPlan& plan, const std::string& output,
                         int64_t last_step,
                         const std::set<int64_t>& unsampled) {
  const char* const weights =
      plan.adapters ? "/adapter_model.safetensors" : "/model.safetensors";
  if (!std::filesystem::exists(output + weights)) {
    return absl::InternalError(absl::StrCat(output, weights, " is not there"));
  }
  RETURN_IF_ERROR(CheckEvaluations(plan, output, last_step));
  return CheckSamples(plan, output, last_step, unsampled);
}

}  // namespace roundhouse::sim
