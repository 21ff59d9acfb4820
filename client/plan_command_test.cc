// `roundhouse plan` against a server on a Unix socket.
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "client/testing/client_fixture.h"

namespace roundhouse::client {
namespace {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class PlanCommandTest : public ClientTest {
 protected:
  PlanCommandTest() {
    answer_.set_feasible(true);
    answer_.set_family("qwen3");
    answer_.add_devices()->set_kind("rtx4090");
    server_.answers().plan = [this](const v1::PlanTrainingRequest& asked,
                                    v1::PlanTrainingResponse* response) {
      asked_ = asked;
      *response = answer_;
      return grpc::Status::OK;
    };
  }

  v1::PlanTrainingRequest asked_;
  v1::PlanTrainingResponse answer_;
};

TEST_F(PlanCommandTest, SendsEveryOption) {
  EXPECT_EQ(
      Run({"plan", "--model", "m", "--devices=4xrtx4090,4xrtx3090",
           "--host-memory", "800GiB", "--host-bandwidth=180.5", "--method",
           "lora", "--lora-r=16", "--target-modules=q_proj,o_proj",
           "--max-length=31000", "--batch-size=32", "--micro-batch-size=2",
           "--gradient-checkpointing=layer", "--fp16-accumulation"}),
      ExitCode::kOk)
      << err();
  EXPECT_EQ(asked_.model(), "m");
  EXPECT_EQ(asked_.devices(), "4xrtx4090,4xrtx3090");
  EXPECT_EQ(asked_.host_memory_bytes(), int64_t{800} << 30);
  EXPECT_EQ(asked_.host_bandwidth(), 180.5);
  EXPECT_EQ(asked_.method(), "lora");
  EXPECT_EQ(asked_.lora_r(), 16);
  ASSERT_EQ(asked_.target_modules_size(), 2);
  EXPECT_EQ(asked_.target_modules(1), "o_proj");
  EXPECT_EQ(asked_.max_length(), 31000);
  EXPECT_EQ(asked_.batch_size(), 32);
  EXPECT_EQ(asked_.micro_batch_size(), 2);
  EXPECT_EQ(asked_.gradient_checkpointing(), "layer");
  EXPECT_TRUE(asked_.fp16_accumulation());
  EXPECT_FALSE(asked_.timeline());
  EXPECT_TRUE(Has(out(), "model:")) << out();
}

TEST_F(PlanCommandTest, WhatIsNotGivenIsLeftToTheServer) {
  EXPECT_EQ(Run({"plan", "--model=m", "--devices=8xh100", "-o", "json"}),
            ExitCode::kOk);
  v1::PlanTrainingRequest expected;
  expected.set_model("m");
  expected.set_devices("8xh100");
  EXPECT_EQ(asked_.SerializeAsString(), expected.SerializeAsString());
  EXPECT_EQ(nlohmann::json::parse(out())["family"], "qwen3");
}

TEST_F(PlanCommandTest, WhatDoesNotFitHasAnExitCodeOfItsOwn) {
  answer_.set_feasible(false);
  answer_.set_host_missing_bytes(77);
  const std::vector<std::string> args = {"plan", "--model=m", "--devices=h100"};
  EXPECT_EQ(Run(args), ExitCode::kQuota);
  EXPECT_TRUE(Has(out(), "77 bytes")) << out();
  EXPECT_EQ(Run({"plan", "--model=m", "--devices=h100", "-o", "name"}),
            ExitCode::kQuota);
  EXPECT_EQ(out(), "infeasible\n");
}

TEST_F(PlanCommandTest, TheTraceGoesToAFile) {
  answer_.mutable_timeline()->add_resources("compute:0");
  answer_.mutable_timeline()->add_kinds("forward");
  answer_.mutable_timeline()->add_intervals()->set_length_ns(10);
  const std::string path = WriteFile("trace.json", "old text, and longer");
  EXPECT_EQ(Run({"plan", "--model=m", "--devices=h100", "--trace=" + path, "-o",
                 "json"}),
            ExitCode::kOk)
      << err();
  EXPECT_TRUE(asked_.timeline());
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  const auto trace = nlohmann::json::parse(text.str());
  EXPECT_EQ(trace["traceEvents"].back()["dur"], 0.01);
  EXPECT_TRUE(Has(err(), "trace of a round: " + path)) << err();
  EXPECT_TRUE(nlohmann::json::parse(out())["timeline"].is_null()) << out();
}

TEST_F(PlanCommandTest, ATraceThatCannotBeWrittenIsAnError) {
  answer_.mutable_timeline()->add_intervals()->set_length_ns(10);
  EXPECT_EQ(Run({"plan", "--model=m", "--devices=h100", "--trace=/no/such/x"}),
            ExitCode::kError);
  EXPECT_TRUE(Has(err(), "/no/such/x: cannot be written")) << err();
  EXPECT_TRUE(Has(out(), "model:"));
}

TEST_F(PlanCommandTest, WithoutAPlanThereIsNoTrace) {
  answer_.set_feasible(false);
  EXPECT_EQ(Run({"plan", "--model=m", "--devices=h100", "--trace=/no/such/x"}),
            ExitCode::kQuota);
  EXPECT_TRUE(Has(err(), "no trace")) << err();
}

TEST_F(PlanCommandTest, TheServersErrorIsShown) {
  server_.answers().plan = [](const auto&, auto*) {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "devices: none");
  };
  EXPECT_EQ(Run({"plan", "--model=m", "--devices=x"}), ExitCode::kError);
  EXPECT_TRUE(Has(err(), "plan m: INVALID_ARGUMENT: flag --devices: none"))
      << err();
}

TEST_F(PlanCommandTest, UsageErrors) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"plan", "--devices=h100"}, "flag --model is missing"},
      {{"plan", "--model=m"}, "flag --devices is missing"},
      {{"plan", "m", "--model=m", "--devices=h100"}, "unexpected argument"},
      {{"plan", "--model=m", "--devices=h100", "--host-memory=8gb"},
       "flag --host-memory: \"8gb\""},
      {{"plan", "--model=m", "--devices=h100", "--host-bandwidth=fast"},
       "flag --host-bandwidth: \"fast\""},
      {{"plan", "--model=m", "--devices=h100", "--lora-r=0"}, "--lora-r"}};
  for (const auto& [args, text] : cases) {
    EXPECT_EQ(Run(args), ExitCode::kUsage) << text;
    EXPECT_TRUE(Has(err(), text)) << err();
    EXPECT_EQ(out(), "");
  }
}

}  // namespace
}  // namespace roundhouse::client
