// The inspector's bounds and children, with shell scripts in the helper's
// place.
#include "server/dataset/dataset_inspector.h"

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "server/dataset/helper_limits.h"
#include "server/spec/spec_error.h"
#include "server/testing/test_model.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;

bool Has(const std::string& text, const std::string& part) {
  return absl::StrContains(text, part);
}

class DatasetInspectorTest : public testing::Test {
 protected:
  DatasetInspectorTest()
      : root_(testing::TempDir() + "/dataset_inspector_test") {
    fs::remove_all(root_);
    fs::create_directories(root_ + "/model");
    WriteTestFile(root_ + "/model/tokenizer.json", "{}");
    WriteTestFile(root_ + "/d.jsonl", "{}");
  }
  ~DatasetInspectorTest() override {
    if (inspector_ != nullptr) inspector_->Stop();
    fs::remove_all(root_);
  }

  // The helper is this bash script from now on.
  void Make(const std::string& script,
            absl::Duration silence_limit = absl::Minutes(5),
            absl::Duration total_limit = absl::InfiniteDuration()) {
    WriteTestFile(root_ + "/helper", script);
    inspector_ = std::make_unique<DatasetInspector>(
        *loop_,
        HelperProgram{.python = "/bin/bash",
                      .script = root_ + "/helper",
                      .silence_limit = silence_limit,
                      .total_limit = total_limit},
        AnyFiles(), [this](const Caller&, Role) -> PathResolver {
          return [this](const std::string& field, const std::string& path,
                        PathKind) -> absl::StatusOr<std::string> {
            if (path != "nowhere") return absl::StrCat(root_, "/", path);
            return FieldError(FieldReason::kPathNotFound, field, "nowhere");
          };
        });
  }

  DatasetQuestion Question() const {
    DatasetQuestion question;
    question.dataset = {"d.jsonl"};
    question.model_name_or_path = "model";
    return question;
  }

  // Its answer comes into answers_; the last one of `wanted_` ends the loop.
  DatasetInspector::InspectionId Ask(const DatasetQuestion& given,
                                     bool cancelled = false) {
    const auto question = inspector_->Check(given);
    EXPECT_TRUE(question.ok()) << question.status();
    const auto id = inspector_->NewId();
    inspector_->Start(
        id, *question, [cancelled] { return cancelled; },
        [this, id](absl::StatusOr<std::string> answer) {
          answers_.insert({id, std::move(answer)});
          if (answers_.size() == wanted_) loop_->Quit();
        });
    return id;
  }

  absl::StatusOr<std::string> Answer(const DatasetQuestion& question) {
    const auto id = Ask(question);
    loop_->Run();
    return answers_.at(id);
  }

  void ExpectField(const DatasetQuestion& question, const std::string& field) {
    const auto checked = inspector_->Check(question);
    EXPECT_TRUE(absl::IsInvalidArgument(checked.status())) << field;
    EXPECT_EQ(ErrorField(checked.status()), field) << checked.status();
  }

  const std::string root_;
  std::unique_ptr<EventLoop> loop_ = *EventLoop::Create();
  std::unique_ptr<DatasetInspector> inspector_;
  size_t wanted_ = 1;
  std::map<DatasetInspector::InspectionId, absl::StatusOr<std::string>>
      answers_;
};

TEST_F(DatasetInspectorTest, TheLastLineIsTheAnswer) {
  Make("echo '{\"progress\": 1}'; printf '{\"rep'; printf 'ort\": 1}\\n'");
  const auto answer = Answer(Question());
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(*answer, "{\"report\": 1}");
}

TEST_F(DatasetInspectorTest, TheHelperIsToldEveryOption) {
  Make("echo \"$*\"");
  DatasetQuestion question = Question();
  question.max_length = 77;
  question.truncation = "left";
  question.packing = true;
  question.seed = 5;
  question.template_date = "2026-01-02";
  question.samples = 4;
  const auto answer = Answer(question);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(
      *answer,
      absl::StrCat("--tokenizer ", root_,
                   "/model --max-length 77 --truncation left --data ", root_,
                   "/d.jsonl --packing --seed 5 --template-date "
                   "2026-01-02 --preview 4 --processes 1"));
}

TEST_F(DatasetInspectorTest, TheHelperIsToldWhichRowsAreMeant) {
  Make("echo \"$*\"");
  WriteTestFile(root_ + "/e.jsonl", "{}");
  DatasetQuestion question = Question();
  question.dataset = {"e.jsonl", "d.jsonl"};
  question.format = "text";
  question.columns = {{"text", "body"}};
  question.max_samples = 9;
  question.validation_split = 0.25;
  question.samples = 1;
  const auto answer = Answer(question);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_TRUE(
      Has(*answer, absl::StrCat("--data ", root_, "/e.jsonl --data ", root_,
                                "/d.jsonl --format text --columns "
                                "{\"text\":\"body\"} --max-samples 9 "
                                "--validation-split 0.25 --seed 42")))
      << *answer;
}

TEST_F(DatasetInspectorTest, WhatIsHeldOutIsReadBehindTheRest) {
  Make("echo \"$*\"");
  DatasetQuestion question = Question();
  question.validation_split = 0.25;
  const auto answer = Answer(question);
  ASSERT_TRUE(answer.ok()) << answer.status();
  const std::vector<std::string> lines = absl::StrSplit(*answer, '\n');
  ASSERT_EQ(lines.size(), 2u) << *answer;
  EXPECT_TRUE(Has(lines[0], " --validate")) << *answer;
  EXPECT_EQ(lines[1],
            absl::StrReplaceAll(
                lines[0], {{" --validate", " --validate --split validation"}}));
}

TEST_F(DatasetInspectorTest, AValidationDatasetIsReadInItsPlace) {
  Make(
      "[[ $* == *e.jsonl* ]] || { echo first; exit; }\n"
      "echo '{\"error\": \"no text\", \"file\": \"e\", \"line\": 2}' >&2\n"
      "exit 3");
  WriteTestFile(root_ + "/e.jsonl", "{}");
  DatasetQuestion question = Question();
  question.validation_dataset = {"e.jsonl"};
  question.with_validation = true;
  question.samples = 1;
  const auto answer = Answer(question);
  EXPECT_TRUE(absl::IsInvalidArgument(answer.status())) << answer.status();
  EXPECT_EQ(answer.status().message(), "e:2: no text");
  question.validation_dataset = {"nowhere"};
  ExpectField(question, "validation_dataset");
}

TEST_F(DatasetInspectorTest, NothingIsReadBehindADatasetThatIsRefused) {
  Make(absl::StrCat("echo x >> ", root_, "/runs\n",
                    "echo '{\"error\": \"no text\"}' >&2; exit 3"));
  DatasetQuestion question = Question();
  question.validation_split = 0.25;
  EXPECT_TRUE(absl::IsInvalidArgument(Answer(question).status()));
  EXPECT_EQ(fs::file_size(root_ + "/runs"), 2u);
}

TEST_F(DatasetInspectorTest, DefaultsAreThoseOfAJob) {
  Make("");
  const auto question = inspector_->Check(Question());
  ASSERT_TRUE(question.ok()) << question.status();
  EXPECT_EQ(question->max_length, kUsualMaxLength);
  EXPECT_EQ(question->seed, JobSpec().seed);
  EXPECT_EQ(question->truncation, "right");
  EXPECT_EQ(question->template_date.size(), 10u);
}

TEST_F(DatasetInspectorTest, WrongWordsSayWhatMayBeMeant) {
  Make("");
  const auto expect = [this](const DatasetQuestion& question,
                             const std::string& text) {
    const absl::Status status = inspector_->Check(question).status();
    EXPECT_TRUE(absl::StrContains(status.message(), text)) << status;
  };
  DatasetQuestion question = Question();
  question.truncation = "rigth";
  expect(question,
         "truncation: \"rigth\" is none of right, left, drop, split; "
         "did you mean right?");
  question = Question();
  question.format = "promt_completion";
  expect(question, "did you mean prompt_completion?");
  question = Question();
  question.columns = {{"promt", "question"}};
  expect(question, "did you mean prompt?");
  question = Question();
  question.validation_split = 0.9;
  expect(question,
         "validation_split: expected a number from 0 to 0.5, got 0.9");
  fs::remove(root_ + "/model/tokenizer.json");
  expect(Question(), "has no tokenizer.json; name the folder that has it");
}

TEST_F(DatasetInspectorTest, RowsLongerThanTheModelAllows) {
  Make("");
  const std::string config = root_ + "/model/config.json";
  WriteTestFile(config, R"({"architectures": ["Qwen3ForCausalLM"],
      "model_type": "qwen3", "hidden_size": 24, "intermediate_size": 36,
      "num_hidden_layers": 3, "num_attention_heads": 2, "head_dim": 10,
      "num_key_value_heads": 1, "vocab_size": 50, "rms_norm_eps": 1e-6,
      "max_position_embeddings": 64, "tie_word_embeddings": true})");
  DatasetQuestion question = Question();
  question.max_length = 64;
  EXPECT_TRUE(inspector_->Check(question).ok())
      << inspector_->Check(question).status();
  for (const bool packing : {false, true}) {
    question.packing = packing;
    question.max_length = 65;
    ExpectField(question, "max_length");
    question.max_length = 0;  // a job's default: what the model allows
    const auto checked = inspector_->Check(question);
    ASSERT_TRUE(checked.ok()) << checked.status();
    EXPECT_EQ(checked->max_length, 64);
  }
  WriteTestFile(config, "{");
  question.max_length = 64;
  ExpectField(question, "model_name_or_path");
}

TEST_F(DatasetInspectorTest, WhatIsWrongIsNamedByField) {
  Make("");
  const auto with = [this](auto change) {
    DatasetQuestion question = Question();
    change(question);
    return question;
  };
  ExpectField(with([](auto& q) { q.dataset = {}; }), "dataset");
  ExpectField(with([](auto& q) { q.dataset = {"nowhere"}; }), "dataset");
  ExpectField(
      with([](auto& q) { q.dataset.assign(kMaxDataFiles + 1, "d.jsonl"); }),
      "dataset");
  ExpectField(with([](auto& q) { q.model_name_or_path = ""; }),
              "model_name_or_path");
  ExpectField(with([](auto& q) { q.model_name_or_path = "other"; }),
              "model_name_or_path");
  ExpectField(with([](auto& q) { q.max_length = 1; }), "max_length");
  ExpectField(with([](auto& q) { q.max_length = int64_t{1} << 31; }),
              "max_length");
  ExpectField(with([](auto& q) { q.truncation = "middle"; }), "truncation");
  ExpectField(with([](auto& q) { q.seed = -1; }), "seed");
  ExpectField(with([](auto& q) { q.format = "dpo"; }), "dataset_format");
  ExpectField(with([](auto& q) {
                q.columns = {{"body", "text"}};
              }),
              "dataset_columns");
  ExpectField(with([](auto& q) {
                q.columns = {{"text", ""}};
              }),
              "dataset_columns");
  ExpectField(with([](auto& q) { q.max_samples = -1; }), "max_samples");
  for (const double share : {-0.1, 1e-7, 0.6, std::nan("")}) {
    ExpectField(with([share](auto& q) { q.validation_split = share; }),
                "validation_split");
  }
  ExpectField(with([](auto& q) { q.samples = 101; }), "samples");
  ExpectField(with([](auto& q) { q.template_date = "2026-02-30"; }),
              "template_date");
  ExpectField(with([](auto& q) { q.template_date = "soon"; }), "template_date");
}

TEST_F(DatasetInspectorTest, ABadDatasetIsNamedWithItsLine) {
  Make(
      "echo '{\"error\": \"no text\", \"file\": \"d\", \"line\": 7}' >&2\n"
      "exit 3");
  const auto answer = Answer(Question());
  EXPECT_TRUE(absl::IsInvalidArgument(answer.status())) << answer.status();
  EXPECT_EQ(answer.status().message(), "d:7: no text");
  EXPECT_EQ(ErrorReason(answer.status()), FieldReason::kInvalidDataset);
}

TEST_F(DatasetInspectorTest, AHelperThatBreaksIsOurFault) {
  Make("echo oops >&2; exit 1");
  EXPECT_TRUE(absl::IsInternal(Answer(Question()).status()));
}

TEST_F(DatasetInspectorTest, ASilentHelperIsKilled) {
  Make("exec sleep 1000", absl::Milliseconds(200));
  const auto answer = Answer(Question());
  EXPECT_TRUE(absl::IsDeadlineExceeded(answer.status())) << answer.status();
  EXPECT_TRUE(Has(std::string(answer.status().message()), "200ms"));
}

TEST_F(DatasetInspectorTest, AnEndlessAnswerIsKilled) {
  Make("exec cat /dev/zero");
  const auto answer = Answer(Question());
  EXPECT_TRUE(absl::IsResourceExhausted(answer.status())) << answer.status();
  EXPECT_TRUE(Has(std::string(answer.status().message()),
                  absl::StrCat(kMaxInspectionBytes, " bytes")));
}

TEST_F(DatasetInspectorTest, ProgressMayBeLongerThanAnAnswer) {
  Make(absl::StrCat("head -c ", 2 * kMaxInspectionBytes,
                    " /dev/zero | tr '\\0' 'x' | fold -w 1000; echo; echo y"));
  const auto answer = Answer(Question());
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(*answer, "y");
}

TEST_F(DatasetInspectorTest, ACancelledOneIsKilledAndMakesRoom) {
  Make("exec sleep 1000");
  // More than run at once: those that wait are cancelled alike.
  wanted_ = kShortInspections + 2;
  std::vector<DatasetInspector::InspectionId> ids;
  for (size_t i = 0; i < wanted_; ++i) ids.push_back(Ask(Question()));
  for (const auto id : ids) inspector_->Cancel(id);
  loop_->Run();
  for (const auto id : ids) {
    EXPECT_TRUE(absl::IsCancelled(answers_.at(id).status()));
  }
}

TEST_F(DatasetInspectorTest, OneMoreThanMayWaitIsRefused) {
  Make("exec sleep 1000");
  wanted_ = 2;
  DatasetQuestion question = Question();
  question.caller.principal = "uid:1";
  for (size_t i = 0; i < kInspectionsEach + kWaitingInspectionsEach; ++i) {
    Ask(question);
  }
  const auto own = Ask(question);
  question.caller.principal = "";
  const size_t waiting = kWaitingInspections - kWaitingInspectionsEach;
  for (size_t i = kInspectionsEach; i < kShortInspections + waiting; ++i) {
    Ask(question);
  }
  const auto any = Ask(question);
  loop_->Run();
  for (const auto id : {own, any}) {
    const absl::Status status = answers_.at(id).status();
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_EQ(ErrorReason(status), FieldReason::kQuota);
  }
}

TEST_F(DatasetInspectorTest, WhoWaitsIsStartedWhenASlotIsFree) {
  Make("echo done");
  wanted_ = kShortInspections + 3;
  for (size_t i = 0; i < wanted_; ++i) Ask(Question());
  loop_->Run();
  for (const auto& [id, answer] : answers_) {
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(*answer, "done");
  }
}

// Endless previews and endless readings of large files, of one caller.
TEST_F(DatasetInspectorTest, NobodyHoldsUpTheOthers) {
  Make("[[ $* == *endless* ]] && exec sleep 1000; echo done");
  WriteTestFile(root_ + "/endless.jsonl",
                std::string(kShortDatasetBytes + 1, ' '));
  DatasetQuestion endless = Question();
  endless.dataset = {"endless.jsonl"};
  endless.caller.principal = "uid:1";
  for (const int samples : {0, 1}) {
    endless.samples = samples;
    for (size_t i = 0; i < kInspectionsEach + 3; ++i) Ask(endless);
  }
  wanted_ = 3;
  std::vector<DatasetInspector::InspectionId> ids;
  for (const char* other : {"uid:2", "uid:3", ""}) {
    DatasetQuestion question = Question();
    question.caller.principal = other;
    question.samples = 1;
    ids.push_back(Ask(question));
  }
  loop_->Run();
  EXPECT_EQ(answers_.size(), 3u);
  for (const auto id : ids) EXPECT_TRUE(answers_.at(id).ok());
}

TEST_F(DatasetInspectorTest, OneThatTellsProgressForEverIsEnded) {
  Make("while true; do echo x; sleep 0.01; done", absl::Minutes(5),
       absl::Milliseconds(300));
  DatasetQuestion question = Question();
  question.samples = 1;
  const auto answer = Answer(question);
  EXPECT_TRUE(absl::IsDeadlineExceeded(answer.status())) << answer.status();
  EXPECT_TRUE(Has(std::string(answer.status().message()), "took longer"));
}

TEST_F(DatasetInspectorTest, AHelperThatMemoryEndedNamesTheLine) {
  Make(
      "echo '{\"at\": \"tokenizing its text\", \"line\": 7}'\n"
      "echo 'memory allocation of 96 bytes failed' >&2\n"
      "kill -ABRT $$");
  const auto answer = Answer(Question());
  EXPECT_TRUE(absl::IsInvalidArgument(answer.status())) << answer.status();
  EXPECT_EQ(answer.status().message(),
            root_ +
                "/d.jsonl:7: tokenizing its text needs more memory than the "
                "2048 MiB that reading may take");
}

TEST_F(DatasetInspectorTest, AHelperThatCpuTimeEndedIsSaidAsSuch) {
  Make("echo 1; kill -XCPU $$");
  const auto answer = Answer(Question());
  EXPECT_TRUE(absl::IsInvalidArgument(answer.status())) << answer.status();
  EXPECT_EQ(answer.status().message(),
            root_ + "/d.jsonl: reading it takes more CPU time than it may");
}

TEST_F(DatasetInspectorTest, AKilledHelperIsNotTheDatasetsFault) {
  Make("kill -KILL $$");
  const auto answer = Answer(Question());
  EXPECT_TRUE(absl::IsInternal(answer.status())) << answer.status();
  EXPECT_TRUE(Has(std::string(answer.status().message()), "signal 9"));
}

TEST_F(DatasetInspectorTest, TheHelperIsToldItsLimits) {
  Make("echo \"$ROUNDHOUSE_HELPER\"");
  const auto answer = Answer(Question());
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_TRUE(
      Has(*answer, absl::StrCat("\"memory_bytes\":", kHelperMemoryBytes)));
  EXPECT_TRUE(Has(*answer, absl::StrCat("\"parent\":", getpid())));
}

TEST_F(DatasetInspectorTest, CancelledBeforeItBeganStartsNothing) {
  Make("touch " + root_ + "/ran");
  const auto id = Ask(Question(), true);
  loop_->Run();
  EXPECT_TRUE(absl::IsCancelled(answers_.at(id).status()));
  EXPECT_FALSE(fs::exists(root_ + "/ran"));
}

TEST_F(DatasetInspectorTest, StopAnswersThoseThatRun) {
  Make("exec sleep 1000");
  wanted_ = 2;
  const auto id = Ask(Question());
  EXPECT_TRUE(loop_->Post([this] { loop_->Quit(); }).ok());
  loop_->Run();
  EXPECT_TRUE(answers_.empty());
  inspector_->Stop();
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_TRUE(absl::IsUnavailable(answers_.at(id).status()));
}

TEST_F(DatasetInspectorTest, AfterTheLoopsEndItIsUnavailable) {
  Make("");
  EXPECT_TRUE(loop_->Post([this] { loop_->Quit(); }).ok());
  loop_->Run();
  const auto id = Ask(Question());
  EXPECT_TRUE(absl::IsUnavailable(answers_.at(id).status()));
}

}  // namespace
}  // namespace roundhouse
