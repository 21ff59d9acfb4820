// What a job file says of its data: files, format, columns, which rows.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/spec/spec.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

absl::StatusOr<JobSpec> With(const std::string& more) {
  return ParseJobSpec(
      absl::StrCat("model_name_or_path: m\ndataset: d.jsonl\n", more, "\n"),
      "job.yaml");
}

void ExpectError(const std::string& more, FieldReason reason,
                 const std::string& field, const std::string& message) {
  const absl::Status status = With(more).status();
  EXPECT_EQ(status.message(), message) << more;
  EXPECT_EQ(ErrorReason(status), reason) << more;
  EXPECT_EQ(ErrorField(status), field) << more;
}

TEST(SpecDataTest, DatasetsAreOneFileOrSeveral) {
  EXPECT_EQ(ParseJobSpec("model: m\ndataset: [a, b/*]", "job.yaml")->dataset,
            (std::vector<std::string>{"a", "b/*"}));
  EXPECT_EQ(With("validation_dataset: [v]")->validation_dataset,
            std::vector<std::string>{"v"});
  std::string many = "validation_dataset:\n";
  for (int i = 0; i < 128; ++i) absl::StrAppend(&many, "- v", i, "\n");
  EXPECT_EQ(With(many)->validation_dataset.size(), 128);
  const std::pair<std::string, std::string> bad[] = {
      {"[]", "expected a path, or a list of 1 to 128 paths, got 0"},
      {"[a, \"\"]",
       "expected a path of 1 to 4096 bytes, or a list of paths, "
       "got the text \"\""},
      {"[[a]]",
       "expected a path of 1 to 4096 bytes, or a list of paths, got "
       "a list"},
      {"{a: b}",
       "expected a path of 1 to 4096 bytes, or a list of paths, got "
       "a mapping"}};
  for (const auto& [text, message] : bad) {
    ExpectError("validation_dataset: " + text, FieldReason::kInvalidValue,
                "validation_dataset",
                absl::StrCat("job.yaml:3: validation_dataset: ", message));
  }
  EXPECT_FALSE(With(many + "- more").ok());
}

TEST(SpecDataTest, WhichRowsAndWhatTheyAre) {
  const auto spec = With(
      "dataset_format: sharegpt\nval_size: 0.05\nmax_samples: 1000\n"
      "dataset_columns: {conversations: dialog, system: \"1\"}\n"
      "eval_steps: 5\ntruncation: drop");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(DatasetFormatArgument(spec->dataset_format), "sharegpt");
  EXPECT_EQ(DatasetColumnsArgument(spec->dataset_columns),
            "{\"conversations\":\"dialog\",\"system\":\"1\"}");
  EXPECT_EQ(spec->validation_split, 0.05);
  EXPECT_EQ(spec->max_samples, 1000);
  EXPECT_TRUE(HasValidation(*spec));
  EXPECT_EQ(DatasetFormatArgument(With("dataset_format: auto")->dataset_format),
            "");
  EXPECT_EQ(DatasetColumnsArgument(With("")->dataset_columns), "");
  EXPECT_FALSE(HasValidation(*With("validation_split: 0")));
  ExpectError("validation_dataset: v\nvalidation_split: 0.1",
              FieldReason::kConflictingFields, "validation_split",
              "job.yaml:4: validation_split: validation_dataset (line 3) "
              "says which rows are evaluated on too; keep one of them");
  ExpectError("validation_split: 0.6", FieldReason::kInvalidValue,
              "validation_split",
              "job.yaml:3: validation_split: expected a number from 0 to 0.5, "
              "got the number 0.6");
  ExpectError("dataset_columns: {nine: a}", FieldReason::kInvalidValue,
              "dataset_columns",
              "job.yaml:3: dataset_columns: expected "
              "chat_template_kwargs, completion, conversations, history, "
              "input, instruction, messages, output, parallel_tool_calls, "
              "prompt, system, text or tools, got the text \"nine\"");
  ExpectError("dataset_columns: {promt: a}", FieldReason::kInvalidValue,
              "dataset_columns",
              "job.yaml:3: dataset_columns: expected "
              "chat_template_kwargs, completion, conversations, history, "
              "input, instruction, messages, output, parallel_tool_calls, "
              "prompt, system, text or tools, got the text \"promt\"; did you "
              "mean prompt?");
  ExpectError("truncation: rigth", FieldReason::kInvalidValue, "truncation",
              "job.yaml:3: truncation: expected right, left, drop or split, "
              "got the text \"rigth\"; did you mean right?");
  ExpectError("dataset_columns: {text: \"\"}", FieldReason::kInvalidValue,
              "dataset_columns",
              "job.yaml:3: dataset_columns: expected a column's name of 1 to "
              "256 bytes under \"text\", got the text \"\"");
  ExpectError("truncation: split\ndataset_format: alpaca",
              FieldReason::kConflictingFields, "truncation",
              "job.yaml:3: truncation: split is for dataset_format text alone");
  EXPECT_EQ(With("truncation: split\ndataset_format: text")->truncation,
            Truncation::kSplit);
}

TEST(SpecDataTest, DataSaysOnlyWhatIsSaid) {
  const auto plain =
      nlohmann::json::parse(ResolvedSpec::Resolve(*With(""), 2).ToJson());
  for (const char* name : {"dataset_format", "dataset_columns",
                           "validation_split", "max_samples"}) {
    EXPECT_FALSE(plain.contains(name)) << name;
  }
  EXPECT_TRUE(plain["dataset"].is_string());
  EXPECT_EQ(plain["max_length"], kUsualMaxLength);
  JobSpec spec = *With(
      "dataset_format: text\nvalidation_split: 0.25\nmax_samples: 9\n"
      "dataset_columns: {text: body}\ntruncation: split\nmax_length: 7");
  spec.dataset = {"a", "b"};
  const ResolvedSpec resolved = ResolvedSpec::Resolve(spec, 2);
  const auto again = ResolvedSpec::FromJson(resolved.ToJson());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->spec() == resolved.spec());
}

}  // namespace
}  // namespace roundhouse
