// `roundhouse dataset` against a server on a Unix socket.
#include <nlohmann/json.hpp>

#include "client/testing/client_fixture.h"

namespace roundhouse::client {
namespace {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class DatasetCommandTest : public ClientTest {
 protected:
  DatasetCommandTest() {
    server_.answers().validate = [this](const v1::ValidateDatasetRequest& asked,
                                        v1::ValidateDatasetResponse* response) {
      options_ = asked.options();
      response->set_format("text");
      response->set_rows(4);
      return grpc::Status::OK;
    };
    server_.answers().preview = [this](const v1::PreviewDatasetRequest& asked,
                                       v1::PreviewDatasetResponse* response) {
      options_ = asked.options();
      samples_ = asked.samples();
      v1::DatasetSample* sample = response->add_samples();
      sample->set_line(1);
      v1::DatasetSpan* span = sample->add_spans();
      span->set_text("x\xc2\x9by\x1b");
      span->set_trained(true);
      return grpc::Status::OK;
    };
  }

  v1::DatasetOptions options_;
  int samples_ = -1;
};

TEST_F(DatasetCommandTest, ValidateSendsEveryOption) {
  EXPECT_EQ(
      Run({"dataset", "validate", "d.jsonl", "--model", "m", "--max-length",
           "64", "--truncation", "left", "--packing", "--seed", "0"}),
      ExitCode::kOk)
      << err();
  EXPECT_EQ(options_.dataset(), "d.jsonl");
  EXPECT_EQ(options_.model_name_or_path(), "m");
  EXPECT_EQ(options_.max_length(), 64);
  EXPECT_EQ(options_.truncation(), "left");
  EXPECT_TRUE(options_.packing());
  EXPECT_TRUE(options_.has_seed());
  EXPECT_TRUE(Has(out(), "rows:            4\n")) << out();
}

TEST_F(DatasetCommandTest, WhichRowsAreMeantIsSent) {
  EXPECT_EQ(Run({"dataset", "validate", "d.jsonl", "more", "e-*", "--model=m",
                 "--dataset-format", "messages", "--dataset-columns",
                 "messages=turns", "--dataset-columns=tools=a=b",
                 "--validation-split", "0.05", "--max-samples", "7",
                 "--truncation", "split"}),
            ExitCode::kOk)
      << err();
  EXPECT_EQ(options_.dataset(), "d.jsonl");
  ASSERT_EQ(options_.more_datasets_size(), 2);
  EXPECT_EQ(options_.more_datasets(1), "e-*");
  EXPECT_EQ(options_.dataset_format(), "messages");
  EXPECT_EQ(options_.dataset_columns().at("messages"), "turns");
  EXPECT_EQ(options_.dataset_columns().at("tools"), "a=b");
  EXPECT_EQ(options_.validation_split(), 0.05);
  EXPECT_EQ(options_.max_samples(), 7);
}

TEST_F(DatasetCommandTest, WhatIsNotGivenIsLeftToTheServer) {
  EXPECT_EQ(Run({"dataset", "validate", "d", "--model=m", "-o", "json"}),
            ExitCode::kOk);
  EXPECT_EQ(options_.max_length(), 0);
  EXPECT_FALSE(options_.has_seed());
  EXPECT_EQ(options_.dataset_format(), "");
  EXPECT_EQ(options_.validation_split(), 0);
  EXPECT_EQ(nlohmann::json::parse(out())["rows"], 4);
  EXPECT_EQ(Run({"dataset", "preview", "d", "--model=m"}), ExitCode::kOk);
  EXPECT_EQ(samples_, 0);
  EXPECT_EQ(Run({"dataset", "validate", "d", "--model=m", "-o", "name"}),
            ExitCode::kOk);
  EXPECT_EQ(out(), "d\n");
}

TEST_F(DatasetCommandTest, ABadDatasetIsExitCodeOne) {
  server_.answers().validate = [](const auto&, auto*) {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "d:3: no\x1btext");
  };
  EXPECT_EQ(Run({"dataset", "validate", "d", "--model=m"}), ExitCode::kError);
  EXPECT_TRUE(Has(err(), "roundhouse: d:3: no\\x1btext\n")) << err();
  EXPECT_EQ(out(), "");
}

TEST_F(DatasetCommandTest, ColourOnATerminalOnly) {
  const std::vector<std::string> args = {"dataset",   "preview", "d",
                                         "--model=m", "-n",      "2"};
  EXPECT_EQ(Run(args), ExitCode::kOk);
  EXPECT_EQ(samples_, 2);
  EXPECT_TRUE(Has(out(), "[[x\\u009by\\x1b]]")) << out();
  environment_.out_is_terminal = true;
  EXPECT_EQ(Run(args), ExitCode::kOk);
  EXPECT_TRUE(Has(out(), "\x1b[32mx\\u009by\\x1b\x1b[0m")) << out();
  variables_["NO_COLOR"] = "1";
  EXPECT_EQ(Run(args), ExitCode::kOk);
  EXPECT_TRUE(Has(out(), "[[x")) << out();
}

TEST_F(DatasetCommandTest, JsonMovesNoCursor) {
  environment_.out_is_terminal = true;
  EXPECT_EQ(Run({"dataset", "preview", "d", "--model=m", "-o", "json"}),
            ExitCode::kOk);
  EXPECT_TRUE(Has(out(), "x\\u009by\\u001b")) << out();
}

TEST_F(DatasetCommandTest, UsageErrors) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"dataset", "validate", "d"}, "flag --model is missing"},
      {{"dataset", "validate", "--model=m"}, "FILE is missing"},
      {{"dataset", "validate", "d", "--model=m", "--dataset-columns", "a"},
       "\"a\" is not FIELD=COLUMN"},
      {{"dataset", "validate", "d", "--model=m", "--dataset-columns", "a=b",
        "--dataset-columns=a=c"},
       "a is given twice"},
      {{"dataset", "validate", "d", "--model=m", "--validation-split", "5%"},
       "\"5%\" is not a number"},
      {{"dataset", "check", "d", "--model=m"}, "\"check\" is none of"},
      {{"dataset", "validate", "d", "--model=m", "-n", "3"}, "is for preview"},
      {{"dataset", "preview", "d", "--model=m", "-n", "101"}, "more than 100"}};
  for (const auto& [args, text] : cases) {
    EXPECT_EQ(Run(args), ExitCode::kUsage) << text;
    EXPECT_TRUE(Has(err(), text)) << err();
    EXPECT_EQ(out(), "");
  }
}

}  // namespace
}  // namespace roundhouse::client
