// `roundhouse model pull` against a server on a Unix socket.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "client/testing/client_fixture.h"

namespace roundhouse::client {
namespace {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

v1::PullModelResponse Message(v1::PullState state, int64_t done) {
  v1::PullModelResponse message;
  message.set_state(state);
  message.set_done_bytes(done);
  message.set_total_bytes(4096);
  message.set_file(2);
  message.set_file_count(3);
  message.set_file_name("model.safetensors");
  return message;
}

v1::PullModelResponse Last() {
  v1::PullModelResponse message = Message(v1::PULL_STATE_FINISHED, 4096);
  message.set_commit("0123abc");
  message.mutable_upload()->set_kind(v1::UPLOAD_KIND_MODEL);
  message.mutable_upload()->set_name("Org--Tiny");
  message.mutable_upload()->set_project("vision");
  message.mutable_upload()->set_version(2);
  message.add_left_out("pytorch_model.bin");
  message.add_left_out("evil\x1b[2J");
  message.set_left_out_count(3);
  return message;
}

class PullCommandTest : public ClientTest {
 protected:
  PullCommandTest() {
    environment_.stream_retry.first_delay = absl::Milliseconds(1);
    server_.answers().pull = [this](const v1::PullModelRequest& request,
                                    const SendPull& send) {
      requests_.push_back(request);
      v1::PullModelResponse asking;
      asking.set_state(v1::PULL_STATE_ASKING);
      send(asking);
      send(Message(v1::PULL_STATE_FETCHING, 1024));
      send(Message(v1::PULL_STATE_FETCHING, 2048));
      if (breaks_ > 0) {
        --breaks_;
        return answer_;
      }
      send(Message(v1::PULL_STATE_CHECKING, 0));
      send(Last());
      return grpc::Status::OK;
    };
  }

  std::vector<v1::PullModelRequest> requests_;
  int breaks_ = 0;  // so many calls end with `answer_`
  grpc::Status answer_ = {grpc::StatusCode::UNAVAILABLE, "the server went"};
};

TEST_F(PullCommandTest, SaysHowAJobFileNamesIt) {
  ASSERT_EQ(Run({"model", "pull", "Org/Tiny@v1", "--project=vision"}),
            ExitCode::kOk)
      << err();
  ASSERT_EQ(requests_.size(), 1u);
  EXPECT_EQ(requests_[0].model(), "Org/Tiny@v1");
  EXPECT_EQ(requests_[0].project(), "vision");
  EXPECT_EQ(requests_[0].name(), "");
  EXPECT_EQ(out(), "model:Org--Tiny\n");
  EXPECT_TRUE(Has(err(),
                  "Left out, since training needs none of it: "
                  "pytorch_model.bin, evil\\x1b[2J and 1 more\n"))
      << err();
  EXPECT_TRUE(Has(err(),
                  "Version 2 is commit 0123abc.  A job file of project "
                  "vision names it so:\n  model_name_or_path: "
                  "model:Org--Tiny\n"))
      << err();
}

TEST_F(PullCommandTest, JsonIsTheLastAnswer) {
  ASSERT_EQ(Run({"model", "pull", "Org/Tiny", "--name=mine", "-o", "json"}),
            ExitCode::kOk)
      << err();
  EXPECT_EQ(requests_.at(0).name(), "mine");
  const auto json = nlohmann::json::parse(out());
  EXPECT_EQ(json["upload"]["name"], "Org--Tiny");
  EXPECT_EQ(json["commit"], "0123abc");
  EXPECT_EQ(json["left_out_count"], 3);
}

TEST_F(PullCommandTest, ATerminalHasABarForEachFile) {
  environment_.err_is_terminal = true;
  ASSERT_EQ(Run({"model", "pull", "Org/Tiny"}), ExitCode::kOk);
  EXPECT_TRUE(Has(err(), "file 2 of 3 [")) << err();
  EXPECT_TRUE(Has(err(), "checking [")) << err();
}

TEST_F(PullCommandTest, ABrokenConnectionIsMadeAgain) {
  breaks_ = 2;
  ASSERT_EQ(Run({"model", "pull", "Org/Tiny"}), ExitCode::kOk) << err();
  EXPECT_EQ(requests_.size(), 3u);
}

TEST_F(PullCommandTest, WhatTheServerRefusesIsNotTriedAgain) {
  breaks_ = 100;
  answer_ = {grpc::StatusCode::FAILED_PRECONDITION,
             "this server fetches nothing: an admin sets --hub=https://HOST"};
  EXPECT_EQ(Run({"model", "pull", "Org/Tiny"}), ExitCode::kPrecondition);
  EXPECT_EQ(requests_.size(), 1u);
  EXPECT_TRUE(Has(err(), "roundhouse: model pull Org/Tiny: ")) << err();
  EXPECT_TRUE(Has(err(), "--hub=https://HOST")) << err();
  answer_ = {grpc::StatusCode::DEADLINE_EXCEEDED, "the hub stays away"};
  EXPECT_EQ(Run({"model", "pull", "Org/Tiny"}), ExitCode::kUnavailable);
  EXPECT_EQ(requests_.size(), 2u);
  EXPECT_EQ(out(), "");
}

TEST_F(PullCommandTest, WhatTheHubIsWaitedForIsSaid) {
  server_.answers().pull = [](const auto&, const SendPull& send) {
    v1::PullModelResponse waits = Message(v1::PULL_STATE_FETCHING, 1);
    waits.set_trouble("the hub answered 503\n");
    send(waits);
    send(waits);
    send(Last());
    return grpc::Status::OK;
  };
  ASSERT_EQ(Run({"model", "pull", "Org/Tiny"}), ExitCode::kOk);
  const std::string line =
      "The hub: the hub answered 503\\n; it is tried again.\n";
  EXPECT_TRUE(Has(err(), line)) << err();
  EXPECT_EQ(err().find(line), err().rfind(line));
}

TEST_F(PullCommandTest, CtrlCSaysHowToGoOn) {
  server_.answers().pull = [this](const auto&, const SendPull& send) {
    interrupt_.Request();
    while (send(Message(v1::PULL_STATE_FETCHING, 1))) {
    }
    return grpc::Status::CANCELLED;
  };
  EXPECT_EQ(Run({"model", "pull", "Org/Tiny", "--name=mine", "--project=p"}),
            ExitCode::kDetached);
  EXPECT_TRUE(Has(err(),
                  "What has come stays for 7 days; go on with:\n"
                  "  roundhouse model pull Org/Tiny --name=mine "
                  "--project=p\n"))
      << err();
}

TEST_F(PullCommandTest, WhatIsNotUnderstoodIsUsage) {
  EXPECT_EQ(Run({"model", "pull"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"model", "pull", "a/b", "--name=a/b"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"model", "list", "--name=a"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"model", "show", "a", "--project=p"}), ExitCode::kUsage);
  EXPECT_TRUE(Has(err(), "flag --project belongs to pull")) << err();
  EXPECT_EQ(Run({"model", "pul", "a/b"}), ExitCode::kUsage);
  EXPECT_TRUE(Has(err(), "did you mean pull?")) << err();
  EXPECT_TRUE(requests_.empty());
}

TEST_F(PullCommandTest, AnAnswerWithoutAModelIsAnError) {
  server_.answers().pull = [](const auto&, const SendPull&) {
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"model", "pull", "a/b"}), ExitCode::kError);
}

}  // namespace
}  // namespace roundhouse::client
