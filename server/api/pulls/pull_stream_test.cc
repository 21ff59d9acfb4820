// ModelService.PullModel over the socket: what comes in is checked, how far it
// is comes out, and whoever hangs up stops it.
#include "server/api/pulls/pull_stream.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "server/api/api_test_fixture.h"
#include "server/hub/fake_hub.h"
#include "server/limits/limit_check.h"
#include "server/limits/limit_table.h"

namespace roundhouse {
namespace {

constexpr char kWeights[] = "model.safetensors";

class PullStreamTest : public ApiTestFixture {
 protected:
  PullStreamTest() {
    hub_.AddModel(3 << 20);
    pull_options_ = hub_.Options();
  }

  static v1::PullModelRequest Request(const std::string& model) {
    v1::PullModelRequest request;
    request.set_model(model);
    return request;
  }
  // All messages of one call.
  grpc::Status Pull(const v1::PullModelRequest& request,
                    std::vector<v1::PullModelResponse>* messages) {
    grpc::ClientContext context;
    Limit(&context);
    const auto reader = models_->PullModel(&context, request);
    v1::PullModelResponse message;
    while (reader->Read(&message)) messages->push_back(message);
    return reader->Finish();
  }

  FakeHub hub_;
};

TEST_F(PullStreamTest, ProgressAndThenTheUpload) {
  v1::PullModelRequest request = Request("org/tiny@main");
  request.set_name("mine");
  std::vector<v1::PullModelResponse> messages;
  const grpc::Status status = Pull(request, &messages);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(messages.front().state() == v1::PULL_STATE_FINISHED,
            messages.size() == 1);
  const v1::PullModelResponse& last = messages.back();
  EXPECT_EQ(last.state(), v1::PULL_STATE_FINISHED);
  EXPECT_EQ(last.upload().name(), "mine");
  EXPECT_EQ(last.upload().kind(), v1::UPLOAD_KIND_MODEL);
  EXPECT_EQ(last.upload().version(), 1);
  EXPECT_EQ(last.upload().project(), "default");
  EXPECT_EQ(last.commit(), kFakeCommit);
  EXPECT_EQ(last.total_bytes(), last.upload().size_bytes());
  ASSERT_EQ(last.left_out_size(), 1);
  EXPECT_EQ(last.left_out(0), "pytorch_model.bin");
  EXPECT_EQ(last.left_out_count(), 1);
  EXPECT_TRUE(uploads_->Find(UploadKind::kModel, "default", "mine", 0).ok());
}

TEST_F(PullStreamTest, NamesAreChecked) {
  std::vector<v1::PullModelResponse> messages;
  for (const std::string& model :
       {std::string(), std::string("tiny"), std::string("org/"),
        std::string("org/tiny/x"), std::string("../tiny"),
        std::string("org/../tiny"), std::string("org/tiny@../main"),
        std::string("org/tiny@a/b"), std::string("org/tiny?x=1"),
        std::string("org/tiny#x"), std::string("org/ti ny"),
        std::string("org/tiny@"), "org/" + std::string(200, 'x')}) {
    const grpc::Status status = Pull(Request(model), &messages);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << model;
    EXPECT_NE(status.error_message().find("model: want ORG/NAME"),
              std::string::npos)
        << status.error_message();
  }
  v1::PullModelRequest request = Request("org/tiny");
  request.set_name("a/b");
  EXPECT_EQ(Pull(request, &messages).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(hub_.requests().empty());
  EXPECT_TRUE(messages.empty());
}

TEST_F(PullStreamTest, WhoHangsUpStopsItAndGoesOnLater) {
  absl::Notification held, go;
  hub_.Next(kWeights,
            [&](const FakeHub::Request&, const std::string& data,
                const WebSink& sink) -> absl::StatusOr<WebHead> {
              const WebHead head{.status = 200, .total = data.size()};
              absl::Status taken = sink(head, data.substr(0, 1 << 20));
              held.Notify();
              go.WaitForNotification();
              if (!taken.ok()) return taken;
              return absl::UnavailableError("cut");
            });
  {
    grpc::ClientContext context;
    Limit(&context);
    const auto reader = models_->PullModel(&context, Request("org/tiny"));
    held.WaitForNotification();
    context.TryCancel();
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  // As long as the first one counts, there is no other of the same user.
  std::vector<v1::PullModelResponse> messages;
  v1::PullModelRequest other = Request("org/tiny");
  other.set_name("other");
  grpc::Status status;
  do {
    status = Pull(other, &messages);
  } while (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  ASSERT_TRUE(status.ok()) << status.error_message();
  go.Notify();
  status = Pull(Request("org/tiny"), &messages);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(hub_.Begins(kWeights).back(), uint64_t{1} << 20);
}

TEST_F(PullStreamTest, WhatComesIsHeldAgainstTheTableOfLimits) {
  const auto table = *LimitTable::Load(store_.get());
  const LimitCheck limits(table.get(), store_.get());
  const Entered entered{
      .caller = {.user = "anna", .projects = {{"vision", Role::kMember}}},
      .project = "vision"};
  const auto wish = FromProto(Request("org/tiny@v1"), entered, &limits);
  ASSERT_TRUE(wish.ok()) << wish.status();
  EXPECT_EQ(wish->model.id, "org/tiny");
  EXPECT_EQ(wish->model.revision, "v1");
  EXPECT_EQ(wish->owner, "anna");
  EXPECT_EQ(wish->project, "vision");
  EXPECT_TRUE(wish->reads("vision"));
  EXPECT_FALSE(wish->reads("speech"));
  const NewUpload upload{.project = "vision", .owner = "anna"};
  EXPECT_TRUE(wish->room(upload, 1000).ok());
  ASSERT_TRUE(
      table->Set(*accounts_->list(), "everybody", "disk_bytes", 999).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(wish->room(upload, 1000)));
}

TEST_F(PullStreamTest, AServerThatStopsEndsIt) {
  absl::Notification held;
  hub_.Next(kWeights,
            [&](const FakeHub::Request&, const std::string& data,
                const WebSink& sink) -> absl::StatusOr<WebHead> {
              held.Notify();
              absl::Status taken = sink({.status = 200}, data.substr(0, 1));
              if (!taken.ok()) return taken;
              return absl::UnavailableError("cut");
            });
  grpc::ClientContext context;
  Limit(&context);
  const auto reader = models_->PullModel(&context, Request("org/tiny"));
  held.WaitForNotification();
  server_->Shutdown(absl::ZeroDuration());
  v1::PullModelResponse message;
  while (reader->Read(&message)) {
  }
  reader->Finish();
  EXPECT_FALSE(pulls_->Begin({.model = {.id = "org/tiny"}}).ok());
}

class NoHubTest : public ApiTestFixture {};

TEST_F(NoHubTest, ItSaysWhatAnAdminDoes) {
  v1::PullModelRequest request;
  request.set_model("org/tiny");
  grpc::ClientContext context;
  Limit(&context);
  const auto reader = models_->PullModel(&context, request);
  v1::PullModelResponse message;
  EXPECT_FALSE(reader->Read(&message));
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_NE(status.error_message().find("--hub=https://HOST"),
            std::string::npos)
      << status.error_message();
}

}  // namespace
}  // namespace roundhouse
