// `roundhouse audit` and `limit` against a server on a Unix socket.
#include <nlohmann/json.hpp>
#include <string>

#include "client/tables/audit_output.h"
#include "client/testing/client_fixture.h"

namespace roundhouse::client {
namespace {

class AuditCommandTest : public ClientTest {
 protected:
  AuditCommandTest() {
    server_.answers().audit = [this](const v1::ListAuditRequest& request,
                                     v1::ListAuditResponse* response) {
      asked_.push_back(request);
      for (int i = 0; i < request.page_size() && left_ > 0; ++i, --left_) {
        *response->add_records() = record_;
      }
      if (left_ > 0) response->set_next_page_token("more");
      return grpc::Status::OK;
    };
    record_.set_number(7);
    record_.mutable_time()->set_seconds(1'700'000'000);
    record_.set_principal("uid:1000");
    record_.set_user("anna");
    record_.set_peer("unix");
    record_.set_rpc("AccountService/SetUser");
    record_.set_resource("otto");
    record_.set_code("OK");
    record_.set_count(1);
  }

  v1::AuditRecord record_;
  int left_ = 1;
  std::vector<v1::ListAuditRequest> asked_;
};

TEST_F(AuditCommandTest, ALineForEachCall) {
  EXPECT_EQ(Run({"audit"}), ExitCode::kOk) << err();
  EXPECT_EQ(
      out(),
      "TIME (UTC)           WHO              FROM  CALL     ON    RESULT\n"
      "2023-11-14 22:13:20  anna (uid:1000)  unix  SetUser  otto  OK\n");
  EXPECT_EQ(asked_[0].page_size(), 50);
  EXPECT_FALSE(asked_[0].has_since());
}

TEST_F(AuditCommandTest, WhatWasRefusedSaysHowOftenAndWhy) {
  record_.set_user("");
  record_.set_resource("a\x1b[2Jb");
  record_.set_code("PERMISSION_DENIED");
  record_.set_reason("PERMISSION_DENIED");
  record_.set_message("only an admin\nmay do this");
  record_.set_count(12);
  EXPECT_EQ(Run({"audit"}), ExitCode::kOk) << err();
  EXPECT_NE(out().find("a\\x1b[2Jb  PERMISSION_DENIED (12 times): only an "
                       "admin\\nmay do this\n"),
            std::string::npos)
      << out();
  EXPECT_EQ(out().find('\x1b'), std::string::npos);
}

TEST_F(AuditCommandTest, StreamsSayWhatTheyAre) {
  record_.set_rpc("CheckpointService/ExportCheckpoint");
  record_.set_part(v1::AUDIT_END);
  record_.set_duration_seconds(65);
  EXPECT_EQ(Run({"audit"}), ExitCode::kOk) << err();
  EXPECT_NE(out().find("ExportCheckpoint ended after 1:05"), std::string::npos)
      << out();
}

TEST_F(AuditCommandTest, FiltersGoToTheServer) {
  EXPECT_EQ(Run({"audit", "--user=anna", "--rpc", "SetUser", "--job=job-3",
                 "--result=failed", "--since=2023-11-14",
                 "--until=2023-11-14T10:00:00Z", "--limit=3", "-o", "json"}),
            ExitCode::kOk)
      << err();
  const v1::ListAuditRequest& asked = asked_[0];
  EXPECT_EQ(asked.user(), "anna");
  EXPECT_EQ(asked.rpc(), "SetUser");
  EXPECT_EQ(asked.resource(), "job-3");
  EXPECT_EQ(asked.result(), "FAILED");
  EXPECT_EQ(asked.since().seconds(), 1'699'920'000);
  EXPECT_EQ(asked.until().seconds(), 1'699'956'000);
  EXPECT_EQ(asked.page_size(), 3);
  const auto json = nlohmann::json::parse(out());
  EXPECT_EQ(json["records"][0]["rpc"], "AccountService/SetUser");
}

TEST_F(AuditCommandTest, AsManyPagesAsItTakes) {
  left_ = 1200;
  EXPECT_EQ(Run({"audit", "--limit=0", "-o", "name"}), ExitCode::kOk) << err();
  EXPECT_EQ(asked_.size(), 3u);
  EXPECT_EQ(asked_[2].page_token(), "more");
  left_ = 60;
  EXPECT_EQ(Run({"audit"}), ExitCode::kOk);
  EXPECT_NE(err().find("There are more"), std::string::npos) << err();
}

TEST_F(AuditCommandTest, WhatIsNoTimeIsUsage) {
  for (const char* flag : {"--since=yesterday", "--until=-3h", "--since=xd"}) {
    EXPECT_EQ(Run({"audit", flag}), ExitCode::kUsage) << flag;
    EXPECT_NE(err().find("is no time"), std::string::npos) << err();
  }
}

class LimitCommandTest : public ClientTest {};

TEST_F(LimitCommandTest, ListSetRemove) {
  server_.answers().limits = [](v1::ListLimitsResponse* response) {
    v1::Limit* limit = response->add_limits();
    limit->set_subject("everybody");
    limit->set_limit("open_streams");
    limit->set_value(100);
    limit->set_built_in(true);
    limit = response->add_limits();
    limit->set_subject("user:anna");
    limit->set_limit("disk_bytes");
    limit->set_value(int64_t{500} << 30);
    limit->set_used(int64_t{3} << 29);
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"limit", "list"}), ExitCode::kOk) << err();
  EXPECT_EQ(out(),
            "SUBJECT    LIMIT         VALUE      USED     SET BY\n"
            "everybody  open_streams  100        -        the server\n"
            "user:anna  disk_bytes    500.0 GiB  1.5 GiB  an admin\n");
  v1::SetLimitRequest set;
  server_.answers().set_limit = [&](const v1::SetLimitRequest& request,
                                    v1::Limit* limit) {
    set = request;
    limit->set_subject(request.subject());
    limit->set_limit(request.limit());
    limit->set_value(request.value());
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"limit", "set", "user:anna", "disk_bytes", "2GiB"}),
            ExitCode::kOk)
      << err();
  EXPECT_EQ(set.subject(), "user:anna");
  EXPECT_EQ(set.value(), int64_t{2} << 30);
  EXPECT_EQ(
      Run({"limit", "set", "everybody", "queued_jobs", "5", "-o", "name"}),
      ExitCode::kOk);
  EXPECT_EQ(set.value(), 5);
  EXPECT_EQ(out(), "everybody queued_jobs\n");
  server_.answers().remove_limit = [](const v1::RemoveLimitRequest& request) {
    EXPECT_EQ(request.limit(), "queued_jobs");
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"limit", "remove", "everybody", "queued_jobs"}),
            ExitCode::kOk);
}

TEST_F(LimitCommandTest, WhatIsNotUnderstoodIsUsage) {
  EXPECT_EQ(Run({"limit"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"limit", "lst"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"limit", "list", "x"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"limit", "set", "everybody", "queued_jobs"}),
            ExitCode::kUsage);
  EXPECT_EQ(Run({"limit", "set", "everybody", "queued_jobs", "2GiB"}),
            ExitCode::kUsage);
  EXPECT_EQ(Run({"limit", "set", "everybody", "disk_bytes", "much"}),
            ExitCode::kUsage);
  EXPECT_NE(err().find("write 500GiB"), std::string::npos) << err();
  EXPECT_EQ(Run({"limit", "remove", "everybody"}), ExitCode::kUsage);
}

TEST(ParseWhenTest, TimesDaysAndHowLongAgo) {
  const absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  EXPECT_EQ(ParseWhen("90m", now), now - absl::Minutes(90));
  EXPECT_EQ(ParseWhen("7d", now), now - absl::Hours(7 * 24));
  EXPECT_EQ(ParseWhen("2023-11-14", now), absl::FromUnixSeconds(1'699'920'000));
  EXPECT_FALSE(ParseWhen("", now).has_value());
  EXPECT_FALSE(ParseWhen("12", now).has_value());
}

}  // namespace
}  // namespace roundhouse::client
