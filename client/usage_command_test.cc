// `roundhouse usage` against a server on a Unix socket.
#include <nlohmann/json.hpp>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/testing/client_fixture.h"

namespace roundhouse::client {
namespace {

class UsageCommandTest : public ClientTest {
 protected:
  UsageCommandTest() {
    server_.answers().usage = [this](const v1::GetUsageRequest& request,
                                     v1::GetUsageResponse* response) {
      asked_ = request;
      *response = answer_;
      return grpc::Status::OK;
    };
    v1::Usage* const anna = answer_.add_usage();
    anna->set_user("anna");
    anna->set_project("vision");
    anna->set_job("job-3");
    anna->set_device_hours(7.5);
    anna->set_host_gib_hours(1234.5678);
    anna->set_device_share(0.9375);
    v1::Usage* const otto = answer_.add_usage();
    otto->set_user("otto\x1b[2J");
    otto->set_project("speech");
    otto->set_device_hours(0.5);
    otto->set_device_share(0.0625);
    answer_.set_device_hours(8);
    answer_.set_host_gib_hours(1234.5678);
  }

  v1::GetUsageRequest asked_;
  v1::GetUsageResponse answer_;
};

TEST_F(UsageCommandTest, UsersOfTheLastSevenDays) {
  EXPECT_EQ(Run({"usage"}), ExitCode::kOk) << err();
  EXPECT_EQ(out(),
            "USER         DEVICE HOURS  HOST GiB HOURS  SHARE\n"
            "anna         7.50          1234.57         93.8 %\n"
            "otto\\x1b[2J  0.50          0.00            6.2 %\n"
            "all          8.00          1234.57\n");
  EXPECT_EQ(asked_.by(), v1::USAGE_BY_USER);
  const int64_t days_ago =
      absl::ToUnixSeconds(absl::Now() - absl::Hours(7 * 24));
  EXPECT_NEAR(static_cast<double>(asked_.since().seconds()),
              static_cast<double>(days_ago), 60);
  EXPECT_EQ(err(), "");
}

TEST_F(UsageCommandTest, ProjectsAndJobsSinceADay) {
  EXPECT_EQ(Run({"usage", "--by=job", "--since=2023-11-14"}), ExitCode::kOk);
  EXPECT_NE(out().find("JOB    USER         PROJECT  DEVICE HOURS"),
            std::string::npos)
      << out();
  EXPECT_NE(out().find("\n-      otto"), std::string::npos) << out();
  EXPECT_EQ(asked_.by(), v1::USAGE_BY_JOB);
  EXPECT_EQ(asked_.since().seconds(), 1'699'920'000);
  answer_.set_left_out(3);
  EXPECT_EQ(Run({"usage", "--by", "project"}), ExitCode::kOk);
  EXPECT_NE(out().find("\nspeech   0.50"), std::string::npos) << out();
  EXPECT_NE(err().find("3 that had less are left out"), std::string::npos);
  EXPECT_EQ(Run({"usage", "--by=project", "-o", "name"}), ExitCode::kOk);
  EXPECT_EQ(out(), "vision\nspeech\n");
  EXPECT_EQ(Run({"usage", "--by=job", "-o", "name"}), ExitCode::kOk);
  EXPECT_EQ(out(), "job-3\n");
  EXPECT_EQ(Run({"usage", "-o", "json"}), ExitCode::kOk);
  const auto json = nlohmann::json::parse(out());
  EXPECT_EQ(json["usage"][0]["device_hours"], 7.5);
}

TEST_F(UsageCommandTest, WhatMeansNothingIsAUsageError) {
  EXPECT_EQ(Run({"usage", "--since=yesterday"}), ExitCode::kUsage);
  EXPECT_NE(err().find("is no time"), std::string::npos) << err();
  EXPECT_EQ(Run({"usage", "--by=users"}), ExitCode::kUsage);
  EXPECT_NE(err().find("did you mean user?"), std::string::npos) << err();
}

}  // namespace
}  // namespace roundhouse::client
