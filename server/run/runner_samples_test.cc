// JobRunner: completions of eval_prompts between steps.  The workers of
// tests/fakes continue a token with the next number, modulo 50; a shell script
// stands in for the text helper.
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/planning/job_needs.h"
#include "server/run/runner_test_fixture.h"

namespace roundhouse {
namespace {

using Tokens = std::vector<int32_t>;

constexpr char kPrompts[] = "eval_prompts: [ten, five]\n";

class RunnerSamplesTest : public RunnerTest {
 protected:
  RunnerSamplesTest() {
    Helper(TextHelperScript("[[10], [5, 6]]"));
    UseOptions(true);
  }
  void Helper(const std::string& script) {
    WriteTestFile(root_ + "/helper", script);
  }
  void UseOptions(bool validation) {
    change_options_ = [this, validation](RunnerOptions& options) {
      options.text.program = {.python = "/bin/bash",
                              .script = root_ + "/helper"};
      if (!validation) options.validation = nullptr;
    };
  }
  // Another life of the job, which goes on after it was paused or died.
  void GoOn(const std::string& fields) {
    NextLife();
    on_step_ = on_evaluation_ = nullptr;
    Run(fields);
    EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  }
  void PauseSoon() {
    loop_->After(absl::ZeroDuration(), [this] { runner_->Pause(); });
  }
  std::vector<nlohmann::json> Lines(const std::string& directory) const {
    std::vector<nlohmann::json> lines;
    std::istringstream text(ReadTestFile(root_ + directory + "/samples.jsonl"));
    for (std::string line; std::getline(text, line);) {
      lines.push_back(nlohmann::json::parse(line));
    }
    return lines;
  }
  // Steps of the lines, each of which two prompts have.
  Steps Logged(const std::string& directory) const {
    Steps steps;
    const auto lines = Lines(directory);
    for (size_t i = 0; i < lines.size(); ++i) {
      EXPECT_EQ(lines[i]["index"], i % 2);
      if (i % 2 == 0) steps.push_back(lines[i]["step"]);
      if (i % 2 == 1) {
        EXPECT_EQ(lines[i]["step"], steps.back());
      }
    }
    return steps;
  }
};

TEST_F(RunnerSamplesTest, BeforeDuringAndAfter) {
  Run(absl::StrCat(kPrompts, "max_steps: 5\nsave_steps: 2\neval_steps: 2\n"));
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  EXPECT_EQ(steps_, (Steps{1, 2, 3, 4, 5}));
  EXPECT_EQ(samples_, (Steps{0, 2, 4, 5}));
  EXPECT_EQ(evaluations_, samples_);
  EXPECT_EQ(Logged("/output"), samples_);
  // A checkpoint has the samples of its step.
  EXPECT_EQ(Logged("/job/checkpoint-2"), (Steps{0, 2}));
  EXPECT_EQ(warnings_, std::vector<std::string>());
}

TEST_F(RunnerSamplesTest, ALineSaysWhatWasDrawn) {
  Run(absl::StrCat(kPrompts, "max_steps: 1"));
  const auto lines = Lines("/output");
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0]["prompt"], "ten");
  EXPECT_EQ(lines[1]["prompt"], "five");
  // To the end token 9, in commands of 16 tokens, each of which is a "t".
  const auto first = lines[0]["tokens"].get<Tokens>();
  ASSERT_EQ(first.size(), 49u);
  EXPECT_EQ(first.front(), 11);
  EXPECT_EQ(first.back(), 9);
  EXPECT_EQ(lines[0]["completion"], "tttt");
  EXPECT_EQ(lines[1]["tokens"].get<Tokens>(), (Tokens{7, 8, 9}));
  EXPECT_EQ(lines[1]["completion"], "t");
  ASSERT_EQ(lines.size(), found_lines_.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i], nlohmann::json::parse(found_lines_[i]));
  }
}

TEST_F(RunnerSamplesTest, WithoutAValidationSet) {
  for (const bool between : {false, true}) {
    Fresh();
    samples_.clear();
    UseOptions(false);
    Run(absl::StrCat(kPrompts, "max_steps: 5\nsave_steps: 0\n",
                     between ? "eval_steps: 2" : ""));
    EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
    EXPECT_EQ(samples_, between ? (Steps{0, 2, 4, 5}) : (Steps{0, 5}));
    EXPECT_EQ(evaluations_, Steps());
    EXPECT_EQ(checkpoints_, Steps{5});
    EXPECT_EQ(Logged("/job/checkpoint-5"), samples_);
  }
}

TEST_F(RunnerSamplesTest, WithAdaptersOverASharedBase) {
  method_ = "method: lora\ntarget_modules: all-linear\nlora_dropout: 0.5\n";
  BaseCache bases(*arena_);
  WriteTestFile(root_ + "/weights", "w");
  change_options_ = [this, &bases,
                     use = change_options_](RunnerOptions& options) {
    use(options);
    options.bases = &bases;
    options.model.sources.clear();
    for (const UnitSpec& unit : ModelUnits(options.model.config)) {
      options.model.sources.emplace_back();
      for (const ParameterSpec& spec : unit.parameters) {
        options.model.sources.back().push_back(
            {{"", root_ + "/weights", {.size_bytes = 1}},
             0,
             static_cast<uint64_t>(spec.element_count) * 4,
             DType::kF32});
      }
    }
    options.base_key = BaseKey(
        options.model, TrainedOf(options.spec, options.model.config).dtype);
  };
  on_end_ = [&bases] { bases.DropUnused(); };
  Run(absl::StrCat(kPrompts, "max_steps: 2\neval_steps: 1"));
  runner_.reset();
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  EXPECT_EQ(Logged("/output"), (Steps{0, 1, 2}));
}

TEST_F(RunnerSamplesTest, ADeadDevicesCommandIsSentAgain) {
  const std::string fields =
      absl::StrCat(kPrompts, "max_steps: 2\nsave_steps: 0\n");
  UseOptions(false);
  Run(fields);
  const auto wanted = ReadTestFile(root_ + "/output/samples.jsonl");
  Fresh();
  fs::remove_all(root_ + "/output");
  // Their first command configures them; with the sample they die.
  Misbehave(0, "answer-and-die");
  Misbehave(1, "answer-and-die");
  Run(fields);
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  EXPECT_EQ(ReadTestFile(root_ + "/output/samples.jsonl"), wanted);
  EXPECT_EQ(warnings_, std::vector<std::string>());
}

TEST_F(RunnerSamplesTest, APauseAtAnyMomentRepeatsNoneAndSkipsNone) {
  const std::string fields =
      absl::StrCat(kPrompts, "max_steps: 4\nsave_steps: 0\neval_steps: 2");
  for (int64_t at = 0; at <= 4; ++at) {
    // An evaluation's loss comes just before its samples.
    for (const bool evaluation : {false, true}) {
      if (evaluation ? at % 2 != 0 : at == 0) continue;
      Fresh();
      auto& hook = evaluation ? on_evaluation_ : on_step_;
      hook = [&](int64_t step) {
        if (step == at) PauseSoon();
      };
      Run(fields);
      ASSERT_EQ(outcome_.state, JobState::kPaused) << outcome_.message;
      GoOn(fields);
      EXPECT_EQ(Logged("/output"), (Steps{0, 2, 4})) << "paused at " << at;
      EXPECT_EQ(warnings_, std::vector<std::string>());
    }
  }
}

TEST_F(RunnerSamplesTest, ACancellationEndsThem) {
  on_evaluation_ = [this](int64_t step) {
    if (step != 2) return;
    loop_->After(absl::ZeroDuration(), [this] { runner_->Cancel(); });
  };
  Run(absl::StrCat(kPrompts, "max_steps: 4\neval_steps: 2"));
  EXPECT_EQ(outcome_.state, JobState::kCancelled);
  EXPECT_EQ(samples_, Steps{0});
}

TEST_F(RunnerSamplesTest, ACrashRepeatsOnlyWhatWasLost) {
  const std::string fields =
      absl::StrCat(kPrompts, "max_steps: 4\nsave_steps: 2\neval_steps: 1");
  Run(fields);
  EXPECT_EQ(kept_samples_, 0u);
  const auto wanted = ReadTestFile(root_ + "/output/samples.jsonl");
  fs::remove_all(root_ + "/job/checkpoint-4");
  samples_.clear();
  GoOn(fields);
  EXPECT_EQ(kept_samples_, 6u);  // of steps 0, 1, 2
  EXPECT_EQ(samples_, (Steps{3, 4}));
  EXPECT_EQ(ReadTestFile(root_ + "/output/samples.jsonl"), wanted);
  // Killed while it exported.
  samples_.clear();
  GoOn(fields);
  EXPECT_EQ(samples_, Steps());
  EXPECT_EQ(ReadTestFile(root_ + "/output/samples.jsonl"), wanted);
}

TEST_F(RunnerSamplesTest, FinishDuringSamplesEndsThere) {
  on_evaluation_ = [this](int64_t step) {
    if (step != 2) return;
    loop_->After(absl::ZeroDuration(),
                 [this] { runner_->FinishAfter(runner_->FinishStep()); });
  };
  Run(absl::StrCat(kPrompts, "max_steps: 6\nsave_steps: 0\neval_steps: 2"));
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  EXPECT_EQ(steps_, (Steps{1, 2}));
  EXPECT_EQ(samples_, (Steps{0, 2}));
  EXPECT_EQ(checkpoints_, Steps{2});
}

TEST_F(RunnerSamplesTest, TheBestModelHasItsSamples) {
  Run(absl::StrCat(kPrompts, "max_steps: 6\nsave_steps: 0\neval_steps: 2\n",
                   "load_best_model_at_end: true"));
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  EXPECT_EQ(Logged("/job/checkpoint-2"), (Steps{0, 2}));
  EXPECT_EQ(Logged("/output"), (Steps{0, 2, 4, 6}));
}

// --- what is in their way ---

TEST_F(RunnerSamplesTest, AHelperThatFailsCostsTheSamplesOnly) {
  Helper("echo '{\"error\": \"unreadable\"}' >&2; exit 3\n");
  Run(absl::StrCat(kPrompts, "max_steps: 3"));
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  EXPECT_EQ(steps_, (Steps{1, 2, 3}));
  EXPECT_EQ(samples_, Steps());
  EXPECT_EQ(warnings_, (std::vector<std::string>{
                           "no samples after step 0: model: unreadable",
                           "no samples after step 3: model: unreadable"}));
  EXPECT_FALSE(fs::exists(root_ + "/output/samples.jsonl"));
}

TEST_F(RunnerSamplesTest, ACommandThatKillsDevicesIsGivenUp) {
  UseOptions(false);
  Misbehave(0, "answer-and-die", 3);
  Misbehave(1, "answer-and-die", 3);
  Run(absl::StrCat(kPrompts, "max_steps: 2"));
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  EXPECT_EQ(samples_, Steps{2});
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_TRUE(absl::StrContains(warnings_[0], "died 3 times")) << warnings_[0];
}

TEST_F(RunnerSamplesTest, WithoutDevicesTheJobFails) {
  UseOptions(false);
  Misbehave(0, "die-at-start", kMaxFruitlessDeaths);
  Misbehave(1, "die-at-start", kMaxFruitlessDeaths);
  Run(absl::StrCat(kPrompts, "max_steps: 2"));
  EXPECT_EQ(outcome_.state, JobState::kFailed);
  EXPECT_EQ(outcome_.reason, JobReason::kNoHealthyDevice);
  EXPECT_EQ(samples_, Steps());
}

TEST_F(RunnerSamplesTest, ControlTokensAreWarnedOfOnce) {
  Helper(TextHelperScript("[[10], [5, 6]]", "[1]"));
  Run(absl::StrCat(kPrompts, "max_steps: 2\neval_steps: 1"));
  EXPECT_EQ(samples_, (Steps{0, 1, 2}));
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_TRUE(absl::StartsWith(
      warnings_[0], "eval_prompts[1]: has special tokens of the tokenizer"))
      << warnings_[0];
}

}  // namespace
}  // namespace roundhouse
