// `roundhouse top` against a server on a Unix socket.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "client/testing/client_fixture.h"

namespace roundhouse::client {
namespace {

class TopCommandTest : public ClientTest {
 protected:
  TopCommandTest() {
    server_.answers().server = [](v1::Server* server) {
      server->set_running_jobs(1);
      return grpc::Status::OK;
    };
    server_.answers().devices = [this](v1::ListDevicesResponse* response) {
      v1::Device* const device = response->add_devices();
      device->set_state(v1::UP);
      device->set_slots(++looks_);
      return grpc::Status::OK;
    };
    server_.answers().list = [this](const v1::ListFineTuningJobsRequest& asked,
                                    v1::ListFineTuningJobsResponse* response) {
      asked_ = asked;
      *response->add_jobs() = MakeJob(v1::RUNNING);
      return grpc::Status::OK;
    };
  }

  size_t Count(const std::string& part) const {
    size_t count = 0;
    const std::string text = out();
    for (size_t at = text.find(part); at != std::string::npos;
         at = text.find(part, at + 1)) {
      ++count;
    }
    return count;
  }

  int looks_ = 0;
  v1::ListFineTuningJobsRequest asked_;
};

TEST_F(TopCommandTest, WithoutATerminalItShowsOneInterval) {
  EXPECT_EQ(Run({"top", "--interval=1"}), ExitCode::kOk) << err();
  EXPECT_EQ(looks_, 2);
  EXPECT_EQ(Count("WAITS FOR"), 1u) << out();
  EXPECT_EQ(Count("a1"), 1u) << out();
  EXPECT_EQ(Count("\x1b"), 0u);
  // Jobs that have ended are not looked at.
  EXPECT_EQ(
      std::count(asked_.states().begin(), asked_.states().end(), v1::SUCCEEDED),
      0);
  EXPECT_GT(asked_.states_size(), 0);
}

TEST_F(TopCommandTest, OnlyATerminalHasAWidth) {
  server_.answers().list = [](const auto&,
                              v1::ListFineTuningJobsResponse* response) {
    *response->add_jobs() = MakeJob(v1::RUNNING);
    response->mutable_jobs(0)->set_name("jobs/" + std::string(200, 'j'));
    return grpc::Status::OK;
  };
  const std::string name(200, 'j');
  EXPECT_EQ(Run({"top", "--interval=1"}), ExitCode::kOk) << err();
  EXPECT_EQ(Count(name), 1u) << out();
  environment_.out_is_terminal = true;
  EXPECT_EQ(Run({"top", "--interval=1", "-n", "1"}), ExitCode::kOk) << err();
  EXPECT_EQ(Count(name), 0u) << out();
}

TEST_F(TopCommandTest, OnATerminalTheScreenIsDrawnAgain) {
  environment_.out_is_terminal = true;
  EXPECT_EQ(Run({"top", "--interval=1", "-n", "2"}), ExitCode::kOk) << err();
  EXPECT_EQ(looks_, 3);
  EXPECT_EQ(Count("\x1b[H\x1b[J"), 2u);
}

TEST_F(TopCommandTest, CtrlCEndsIt) {
  environment_.out_is_terminal = true;
  server_.answers().server = [this](v1::Server*) {
    if (looks_ == 1) interrupt_.Request();
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"top", "--interval=1"}), ExitCode::kOk) << err();
  EXPECT_LE(looks_, 2);
}

TEST_F(TopCommandTest, Json) {
  EXPECT_EQ(Run({"top", "--interval=1", "-o", "json"}), ExitCode::kOk) << err();
  const auto json = nlohmann::json::parse(out());
  EXPECT_EQ(json["devices"].size(), 1u);
  EXPECT_EQ(json["jobs"].size(), 1u);
  EXPECT_EQ(json["server"]["running_jobs"], 1);
}

TEST_F(TopCommandTest, WhatItCannotDo) {
  EXPECT_EQ(Run({"top", "-o", "name"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"top", "--interval=0"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"top", "--interval=3601"}), ExitCode::kUsage);
  server_.answers().devices = nullptr;
  EXPECT_EQ(Run({"top"}), ExitCode::kError) << err();
}

}  // namespace
}  // namespace roundhouse::client
