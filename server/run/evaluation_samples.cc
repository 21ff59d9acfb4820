#include "server/run/evaluation_samples.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "base/log.h"
#include "nlohmann/json.hpp"
#include "server/spec/spec.h"

namespace roundhouse {
namespace {

using nlohmann::json;

// The prompts of the newest step, if each is there once and in order.
struct NewestStep {
  int64_t step = -1;
  std::vector<std::string> prompts;
};

// Whether the line is one of samples.jsonl of a step up to `step`.
bool IsLine(const json& line, int64_t step) {
  return line.is_object() && line.contains("step") &&
         line["step"].is_number_integer() && line["step"] <= step &&
         line.contains("prompt") && line["prompt"].is_string();
}

void Add(const json& line, NewestStep& newest) {
  const int64_t step = line["step"];
  if (step != newest.step) newest = {step, {}};
  newest.prompts.push_back(line["prompt"].get<std::string>());
}

}  // namespace

PromptRunOptions EvalPromptOptions(const EvaluationSamplesOptions& options) {
  return {.text = options.text,
          .prompts = options.prompts,
          .field = "eval_prompts",
          .model = options.model,
          .job = options.job,
          .max_new_tokens = kEvalNewTokens};
}

EvaluationSamples::EvaluationSamples(EventLoop& loop, HostArena& arena,
                                     WorkerPool& pool,
                                     EvaluationSamplesOptions options)
    : loop_(loop),
      arena_(arena),
      pool_(pool),
      options_(std::move(options)),
      times_(!options_.prompts.empty(), options_.eval_steps),
      next_sample_(options_.job << 32) {}  // no two jobs share one

EvaluationSamples::~EvaluationSamples() { loop_.CancelTimer(finish_timer_); }

void EvaluationSamples::GoOnFrom(const std::string& lines, int64_t step) {
  NewestStep newest;
  std::istringstream stream(lines);
  for (std::string text; std::getline(stream, text);) {
    const json line = json::parse(text, nullptr, false);
    if (!IsLine(line, step)) continue;
    lines_.push_back(text);
    Add(line, newest);
  }
  // Another job's checkpoint may be of other prompts.
  if (newest.prompts == options_.prompts) times_.DoneUpTo(newest.step);
}

void EvaluationSamples::Begin(int64_t step, std::vector<wire::SlotUnit> units,
                              Over over) {
  ROUNDHOUSE_CHECK(!running());
  times_.DoneUpTo(step);
  over_ = std::move(over);
  samples_.clear();
  for (size_t i = 0; i < options_.prompts.size(); ++i) {
    samples_.push_back({.step = step, .prompt = static_cast<int>(i)});
  }
  PromptRunOptions options = EvalPromptOptions(options_);
  // Two runs never share what a device keeps of a sample.
  options.first_sample = next_sample_;
  next_sample_ += kSampleNumbers;
  run_ = std::make_unique<PromptRun>(
      loop_, arena_, pool_, std::move(options),
      PromptRunCalls{
          .tokenized = [this, units = std::move(units)] { run_->Draw(units); },
          .piece = [this](SamplePiece piece) { OnPiece(std::move(piece)); },
          .computed = options_.computed,
          .over = [this](absl::Status status) { OnRunOver(status); }});
  run_->Start();
}

void EvaluationSamples::Stop() {
  if (run_ != nullptr) run_->End(absl::CancelledError("the job stops"));
}

void EvaluationSamples::OnPiece(SamplePiece piece) {
  EvaluationSample& sample = samples_[piece.prompt];
  sample.completion += piece.text;
  sample.tokens.insert(sample.tokens.end(), piece.tokens.begin(),
                       piece.tokens.end());
}

void EvaluationSamples::OnRunOver(const absl::Status& status) {
  // The run is still on the stack.
  finish_timer_ =
      loop_.After(absl::ZeroDuration(), [this, status] { Finish(status); });
}

void EvaluationSamples::Finish(const absl::Status& status) {
  const std::unique_ptr<PromptRun> run = std::move(run_);
  const Over over = std::exchange(over_, nullptr);
  if (!status.ok()) return over(status);
  Found found{.samples = std::move(samples_)};
  for (const EvaluationSample& sample : found.samples) {
    found.lines.push_back(Line(sample));
  }
  lines_.insert(lines_.end(), found.lines.begin(), found.lines.end());
  if (!std::exchange(told_control_tokens_, true)) {
    found.control_tokens = run->control_tokens();
  }
  over(std::move(found));
}

std::string EvaluationSamples::Line(const EvaluationSample& sample) const {
  const nlohmann::ordered_json line = {
      {"step", sample.step},
      {"index", sample.prompt},
      {"prompt", options_.prompts[sample.prompt]},
      {"completion", sample.completion},
      {"tokens", sample.tokens}};
  return line.dump(-1, ' ', false, json::error_handler_t::replace);
}

void EvaluationSamples::OnWorkerUp(WorkerId worker) {
  if (run_ != nullptr) run_->OnWorkerUp(worker);
}

void EvaluationSamples::OnDeviceLost() {
  if (run_ != nullptr) run_->OnDeviceLost();
}

}  // namespace roundhouse
