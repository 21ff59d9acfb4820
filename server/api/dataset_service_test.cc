// DatasetService through the gRPC server, with shell scripts in the helper's
// place.
#include "server/api/dataset_service.h"

#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "server/api/api_test_fixture.h"

namespace roundhouse {
namespace {

constexpr char kReport[] =
    R"({"report": {"format": "text", "rows": 4, "sequences": 3, "tokens": 30,)"
    R"( "target_tokens": 20, "truncated": 1, "truncated_lines": [2],)"
    R"( "dropped": {"too_long": 1}, "dropped_lines": {"too_long": [4]},)"
    R"( "boundary_merged": 5, "max_sequence_tokens": 16,)"
    R"( "ignored_fields": {"id": 4}, "warnings": [{"kind": "control_tokens",)"
    R"( "rows": 2, "lines": [1, 3], "warning": "beware"}],)"
    R"( "packed_rows": 2, "max_row_tokens": 19}})";
constexpr char kSamples[] =
    R"({"format": "messages", "samples": [{"line": 3, "tokens": 5,)"
    R"( "target_tokens": 2, "spans": [{"text": "a", "trained": false},)"
    R"( {"text": "b\u001b", "trained": true}]}], "rows": 5, "whole": true,)"
    R"( "warnings": [)"
    R"({"kind": "truncated", "rows": 6, "lines": [1, 2],)"
    R"( "warning": "6 rows are cut"}, {"kind": "ignored_fields", "rows": 5,)"
    R"( "lines": [], "warning": "not used"}]})";

TEST(DatasetAnswerTest, AReportIsConvertedWhole) {
  const auto report = ReportFromJson(kReport);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->format(), "text");
  EXPECT_EQ(report->rows(), 4);
  EXPECT_EQ(report->sequences(), 3);
  EXPECT_EQ(report->tokens(), 30);
  EXPECT_EQ(report->target_tokens(), 20);
  EXPECT_EQ(report->max_sequence_tokens(), 16);
  EXPECT_EQ(report->truncated(), 1);
  EXPECT_EQ(report->truncated_lines(0), 2);
  EXPECT_EQ(report->boundary_merged(), 5);
  ASSERT_EQ(report->dropped_size(), 1);
  EXPECT_EQ(report->dropped(0).reason(), "too_long");
  EXPECT_EQ(report->dropped(0).lines(0), 4);
  ASSERT_EQ(report->ignored_fields_size(), 1);
  EXPECT_EQ(report->ignored_fields(0).name(), "id");
  ASSERT_EQ(report->warnings_size(), 1);
  EXPECT_EQ(report->warnings(0).message(), "beware");
  EXPECT_EQ(report->warnings(0).lines(1), 3);
  EXPECT_EQ(report->packed_rows(), 2);
  EXPECT_EQ(report->max_row_tokens(), 19);
}

TEST(DatasetAnswerTest, SamplesAreConvertedWhole) {
  const auto preview = SamplesFromJson(kSamples);
  ASSERT_TRUE(preview.ok()) << preview.status();
  EXPECT_EQ(preview->format(), "messages");
  ASSERT_EQ(preview->samples_size(), 1);
  const v1::DatasetSample& sample = preview->samples(0);
  EXPECT_EQ(sample.line(), 3);
  EXPECT_EQ(sample.tokens(), 5);
  EXPECT_EQ(sample.target_tokens(), 2);
  ASSERT_EQ(sample.spans_size(), 2);
  EXPECT_FALSE(sample.spans(0).trained());
  EXPECT_TRUE(sample.spans(1).trained());
  EXPECT_EQ(sample.spans(1).text(), "b\x1b");
}

TEST(DatasetAnswerTest, WhatIsHeldOutIsASecondLine) {
  const auto report = ReportFromJson(absl::StrCat(kReport, "\n", kReport));
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_TRUE(report->has_held_out());
  EXPECT_EQ(report->held_out().rows(), 4);
  EXPECT_FALSE(ReportFromJson(kReport)->has_held_out());
}

TEST(DatasetAnswerTest, LinesOfSeveralFilesAreNotNumberedThrough) {
  std::string text = kReport;
  text.replace(text.find("\"boundary_merged\""), 0,
               R"("inputs": [{"name": "a", "lines_before": 0}], )");
  const auto report = ReportFromJson(text);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->truncated(), 1);
  EXPECT_EQ(report->truncated_lines_size(), 0);
  EXPECT_EQ(report->dropped(0).lines_size(), 0);
}

TEST(DatasetAnswerTest, ADryRunSaysWhichRowsWereChecked) {
  const auto whole = FirstRowsFromJson(kSamples);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->what, "Read and checked: all 5 rows of the dataset.");
  EXPECT_EQ(whole->sample.line(), 3);
  EXPECT_EQ(whole->warnings, (std::vector<std::string>{
                                 "dataset: 6 rows are cut (lines 1, 2, ...)",
                                 "dataset: not used"}));
  EXPECT_EQ(whole->rows, 5);
  std::string part = kSamples;
  part.replace(part.find("true", part.find("whole")), 4, "false");
  const auto rows = FirstRowsFromJson(absl::StrCat(part, "\n", kSamples));
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->what,
            "Read and checked: the first 5 rows of the dataset, all 5 rows of "
            "the validation data. The rest is checked when the job's data are "
            "prepared; `roundhouse dataset validate` checks all of it now.");
  EXPECT_EQ(rows->warnings.size(), 4u);
  EXPECT_EQ(rows->warnings[3], "validation data: not used");
  EXPECT_EQ(rows->rows, 0);
  EXPECT_TRUE(absl::IsInternal(
      FirstRowsFromJson(
          R"({"format": "text", "samples": [], "rows": 0, "whole": true,)"
          R"( "warnings": []})")
          .status()));
}

TEST(DatasetAnswerTest, AnythingElseIsInternal) {
  for (const char* bad :
       {"", "no json", "{}", "[]", R"({"report": {"format": 1}})",
        R"({"samples": [{}], "format": "text"})"}) {
    EXPECT_TRUE(absl::IsInternal(ReportFromJson(bad).status())) << bad;
    EXPECT_TRUE(absl::IsInternal(SamplesFromJson(bad).status())) << bad;
  }
}

class DatasetServiceTest : public ApiTestFixture {
 protected:
  void SetUp() override {
    ApiTestFixture::SetUp();
    std::filesystem::create_directories(dir_ / "model");
    std::ofstream(dir_ / "model/tokenizer.json") << "{}";
    std::ofstream(dir_ / "d.jsonl") << "{}";
  }
  void SetHelper(const std::string& script) {
    std::ofstream(dir_ / "helper") << script;
  }
  v1::DatasetOptions Options() {
    v1::DatasetOptions options;
    options.set_dataset(dir_ / "d.jsonl");
    options.set_model_name_or_path(dir_ / "model");
    return options;
  }
  grpc::Status Validate(const v1::DatasetOptions& options,
                        grpc::ClientContext* context,
                        v1::ValidateDatasetResponse* response) {
    v1::ValidateDatasetRequest request;
    *request.mutable_options() = options;
    return datasets_->ValidateDataset(context, request, response);
  }
  grpc::Status Validate(const v1::DatasetOptions& options,
                        v1::ValidateDatasetResponse* response) {
    grpc::ClientContext context;
    Limit(&context);
    return Validate(options, &context, response);
  }
  grpc::Status Preview(int samples, v1::PreviewDatasetResponse* response) {
    grpc::ClientContext context;
    Limit(&context);
    v1::PreviewDatasetRequest request;
    *request.mutable_options() = Options();
    request.set_samples(samples);
    return datasets_->PreviewDataset(&context, request, response);
  }
  void WaitFor(const std::filesystem::path& path) {
    const absl::Time limit = absl::Now() + absl::Seconds(60);
    while (!std::filesystem::exists(path) && absl::Now() < limit) {
      absl::SleepFor(absl::Milliseconds(5));
    }
    ASSERT_TRUE(std::filesystem::exists(path)) << path;
  }
  // Whether the process lives whose id is in this file.
  bool Lives(const std::filesystem::path& path) {
    int pid = 0;
    std::ifstream(path) >> pid;
    return pid > 0 && std::filesystem::exists(absl::StrCat("/proc/", pid));
  }
};

TEST_F(DatasetServiceTest, ValidateAnswersTheReport) {
  SetHelper(absl::StrCat("cat <<'E'\n{\"progress\": 1}\n", kReport, "\nE\n"));
  v1::ValidateDatasetResponse response;
  const grpc::Status status = Validate(Options(), &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.rows(), 4);
}

TEST_F(DatasetServiceTest, PreviewAsksForThreeOrAsManyAsGiven) {
  SetHelper(absl::StrCat("echo \"$*\" >> ", dir_.string(),
                         "/words; cat <<'E'\n", kSamples, "\nE\n"));
  for (const int samples : {0, 7}) {
    v1::PreviewDatasetResponse response;
    const grpc::Status status = Preview(samples, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.samples_size(), 1);
  }
  std::ifstream words(dir_ / "words");
  std::string first;
  std::string second;
  std::getline(words, first);
  std::getline(words, second);
  EXPECT_TRUE(absl::StrContains(first, " --preview 3")) << first;
  EXPECT_TRUE(absl::StrContains(second, " --preview 7")) << second;
}

TEST_F(DatasetServiceTest, WhichRowsAreMeantIsAsked) {
  SetHelper(absl::StrCat("echo \"$*\" >> ", dir_.string(),
                         "/words; cat <<'E'\n", kReport, "\nE\n"));
  std::ofstream(dir_ / "e.jsonl") << "{}";
  v1::DatasetOptions options = Options();
  options.add_more_datasets(dir_ / "e.jsonl");
  options.set_dataset_format("text");
  (*options.mutable_dataset_columns())["text"] = "body";
  options.set_validation_split(0.25);
  options.set_max_samples(9);
  options.set_truncation("split");
  v1::ValidateDatasetResponse response;
  const grpc::Status status = Validate(options, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.held_out().rows(), 4);
  std::ifstream words(dir_ / "words");
  std::string first;
  std::getline(words, first);
  EXPECT_TRUE(absl::StrContains(
      first, absl::StrCat("--truncation split --data ", dir_.string(),
                          "/d.jsonl --data ", dir_.string(),
                          "/e.jsonl --format text --columns "
                          "{\"text\":\"body\"} --max-samples 9 "
                          "--validation-split 0.25 --seed 42")))
      << first;
}

TEST_F(DatasetServiceTest, ABadQuestionStartsNothing) {
  SetHelper(absl::StrCat("touch ", dir_.string(), "/ran"));
  v1::DatasetOptions options = Options();
  options.set_dataset("outside");
  v1::ValidateDatasetResponse response;
  EXPECT_EQ(Validate(options, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  v1::PreviewDatasetResponse preview;
  EXPECT_EQ(Preview(101, &preview).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_FALSE(std::filesystem::exists(dir_ / "ran"));
}

TEST_F(DatasetServiceTest, ANonsensicalAnswerIsInternalAndHidden) {
  SetHelper("echo secret");
  v1::ValidateDatasetResponse response;
  const grpc::Status status = Validate(Options(), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_FALSE(absl::StrContains(status.error_message(), "secret"));
}

TEST_F(DatasetServiceTest, ACancelledCallsHelperIsKilled) {
  SetHelper(absl::StrCat("echo $$ > ", dir_.string(), "/part; mv ",
                         dir_.string(), "/part ", dir_.string(),
                         "/pid; exec sleep 1000"));
  grpc::ClientContext context;
  Limit(&context);
  v1::ValidateDatasetResponse response;
  grpc::Status status;
  std::thread call([&] { status = Validate(Options(), &context, &response); });
  WaitFor(dir_ / "pid");
  EXPECT_TRUE(Lives(dir_ / "pid"));
  context.TryCancel();
  call.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  const absl::Time limit = absl::Now() + absl::Seconds(60);
  while (Lives(dir_ / "pid") && absl::Now() < limit) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_FALSE(Lives(dir_ / "pid"));
}

TEST_F(DatasetServiceTest, StoppingAnswersACallThatRuns) {
  SetHelper(absl::StrCat("touch ", dir_.string(), "/ran; exec sleep 1000"));
  v1::ValidateDatasetResponse response;
  grpc::Status status;
  std::thread call([&] { status = Validate(Options(), &response); });
  WaitFor(dir_ / "ran");
  StopInspector();
  call.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace roundhouse
