// ModelService.Sample through the gRPC server, with a sampler that the test
// answers for.
#include "server/api/sample_stream.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "proto/google/rpc/error_details.pb.h"
#include "proto/google/rpc/status.pb.h"
#include "server/api/api_test_fixture.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

v1::SampleRequest Request() {
  v1::SampleRequest request;
  request.set_model("job-7");
  request.add_prompts("one");
  return request;
}

TEST(SampleRequestTest, DefaultsAndFullNames) {
  v1::SampleRequest request = Request();
  request.set_model("projects/default/fineTuningJobs/job-7");
  request.set_seed(9);
  auto question = FromProto(request);
  ASSERT_TRUE(question.ok()) << question.status();
  EXPECT_EQ(question->model, "projects/default/fineTuningJobs/job-7");
  EXPECT_EQ(question->prompts, (std::vector<std::string>{"one"}));
  EXPECT_EQ(question->max_new_tokens, 128);
  EXPECT_EQ(question->temperature, 0);
  EXPECT_EQ(question->seed, 9u);
  EXPECT_FALSE(question->raw);
  request.set_model("runs/checkpoint-4");
  EXPECT_EQ(FromProto(request)->model, "runs/checkpoint-4");
}

TEST(SampleRequestTest, LimitsNameTheField) {
  using Change = void (*)(v1::SampleRequest&);
  const std::pair<const char*, Change> cases[] = {
      {"model", [](auto& r) { r.clear_model(); }},
      {"prompts", [](auto& r) { r.clear_prompts(); }},
      {"prompts",
       [](auto& r) {
         for (int i = 0; i < 256; ++i) r.add_prompts("x");
       }},
      {"prompts", [](auto& r) { r.add_prompts(std::string(1 << 20, 'x')); }},
      {"max_new_tokens", [](auto& r) { r.set_max_new_tokens(1025); }},
      {"max_new_tokens", [](auto& r) { r.set_max_new_tokens(-1); }},
      {"temperature", [](auto& r) { r.set_temperature(-0.5); }},
      {"temperature", [](auto& r) { r.set_temperature(101); }},
      {"temperature", [](auto& r) {
         r.set_temperature(std::numeric_limits<double>::quiet_NaN());
       }}};
  for (const auto& [field, change] : cases) {
    v1::SampleRequest request = Request();
    change(request);
    const auto question = FromProto(request);
    EXPECT_TRUE(absl::IsInvalidArgument(question.status())) << field;
    EXPECT_EQ(ErrorField(question.status()), field);
    EXPECT_TRUE(absl::StartsWith(question.status().message(),
                                 absl::StrCat(field, ": ")))
        << question.status();
  }
}

class SampleStreamTest : public ApiTestFixture {
 protected:
  struct Found {
    std::vector<v1::SampleResponse> messages;
    grpc::Status status;
  };
  Found Sample(const v1::SampleRequest& request) {
    grpc::ClientContext context;
    Limit(&context);
    Found found;
    const auto reader = models_->Sample(&context, request);
    v1::SampleResponse message;
    while (reader->Read(&message)) found.messages.push_back(message);
    found.status = reader->Finish();
    return found;
  }
};

TEST_F(SampleStreamTest, PiecesComeInOrder) {
  SampleQuestion asked;
  sampler_.answer = [&](const SampleQuestion& question, auto sink) {
    asked = question;
    sink->OnSource("/data/model");
    sink->OnPiece({0, "a", {5, 6}, SampleEnd::kNone});
    sink->OnPiece({1, "b", {7}, SampleEnd::kContextFull});
    sink->OnPiece({0, "c", {8}, SampleEnd::kMaxNewTokens});
    sink->OnEnd(absl::OkStatus());
  };
  v1::SampleRequest request = Request();
  request.add_prompts("two");
  request.set_raw(true);
  const Found found = Sample(request);
  EXPECT_TRUE(found.status.ok()) << found.status.error_message();
  EXPECT_EQ(asked.prompts.size(), 2u);
  EXPECT_TRUE(asked.raw);
  ASSERT_EQ(found.messages.size(), 4u);
  EXPECT_EQ(found.messages[0].source(), "/data/model");
  EXPECT_EQ(found.messages[1].text(), "a");
  EXPECT_EQ(found.messages[1].tokens_size(), 2);
  EXPECT_EQ(found.messages[1].end(), v1::SAMPLE_END_UNSPECIFIED);
  EXPECT_EQ(found.messages[2].prompt(), 1);
  EXPECT_EQ(found.messages[2].end(), v1::CONTEXT_FULL);
  EXPECT_EQ(found.messages[3].end(), v1::MAX_NEW_TOKENS);
}

TEST_F(SampleStreamTest, WhatCameBeforeAnErrorIsKept) {
  sampler_.answer = [](const SampleQuestion&, auto sink) {
    sink->OnSource("/data/model");
    sink->OnEnd(FieldError(absl::StatusCode::kResourceExhausted,
                           FieldReason::kHostMemory, "model",
                           "a training job goes first"));
  };
  const Found found = Sample(Request());
  EXPECT_EQ(found.messages.size(), 1u);
  EXPECT_EQ(found.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(found.status.error_details()));
  google::rpc::ErrorInfo info;
  ASSERT_TRUE(details.details(0).UnpackTo(&info));
  EXPECT_EQ(info.reason(), "HOST_MEMORY");
}

TEST_F(SampleStreamTest, ABadRequestNeverReachesTheSampler) {
  sampler_.answer = [](const SampleQuestion&, auto) { FAIL() << "was asked"; };
  v1::SampleRequest request = Request();
  request.set_temperature(-1);
  const Found found = Sample(request);
  EXPECT_EQ(found.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(found.status.error_message(), "temperature: -1; from 0 to 100");
}

TEST_F(SampleStreamTest, ACallerThatLeavesIsToldOf) {
  std::shared_ptr<SampleSink> kept;
  sampler_.answer = [&](const SampleQuestion&, auto sink) {
    kept = sink;  // first: the caller may look once it has the source
    sink->OnSource("/data/model");
  };
  grpc::ClientContext context;
  Limit(&context);
  const auto reader = models_->Sample(&context, Request());
  v1::SampleResponse message;
  ASSERT_TRUE(reader->Read(&message));
  EXPECT_FALSE(kept->cancelled());
  context.TryCancel();
  sampler_.AwaitCancelled(1);
  EXPECT_TRUE(kept->cancelled());
  // What comes late goes nowhere.
  kept->OnPiece({0, "a", {5}, SampleEnd::kNone});
  kept->OnEnd(absl::CancelledError("cancelled"));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

}  // namespace
}  // namespace roundhouse
