// What calls leave in the audit, over a real socket.
#include <unistd.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "server/api/api_test_fixture.h"

namespace roundhouse {
namespace {

class ApiAuditTest : public ApiTestFixture {
 protected:
  std::vector<v1::AuditRecord> Rows(const v1::ListAuditRequest& request = {}) {
    grpc::ClientContext context;
    Limit(&context);
    v1::ListAuditResponse response;
    const grpc::Status status =
        account_stub_->ListAudit(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    next_page_ = response.next_page_token();
    return {response.records().begin(), response.records().end()};
  }
  // Rows that are written soon.
  std::vector<v1::AuditRecord> AwaitRows(size_t count) {
    std::vector<v1::AuditRecord> rows;
    for (int tries = 0; rows.size() < count && tries < 10'000; ++tries) {
      rows = Rows();
    }
    EXPECT_EQ(rows.size(), count);
    rows.resize(count);
    return rows;
  }
  grpc::Status SetUser(const std::string& name) {
    grpc::ClientContext context;
    Limit(&context);
    v1::SetUserRequest request;
    request.set_user(name);
    request.set_uid(geteuid());
    request.set_role(v1::ADMIN);
    v1::User user;
    return account_stub_->SetUser(&context, request, &user);
  }
  grpc::Status Cancel(const std::string& name) {
    grpc::ClientContext context;
    Limit(&context);
    v1::CancelFineTuningJobRequest request;
    request.set_name(name);
    v1::FineTuningJob job;
    return jobs_->CancelFineTuningJob(&context, request, &job);
  }
  std::string Metrics() const { return metrics_->Render(); }

  std::string next_page_;
};

TEST_F(ApiAuditTest, WhatIsMadeIsThereWhenItsCallIsAnswered) {
  MustCreate();
  auto rows = Rows();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].rpc(), "FineTuningJobService/CreateFineTuningJob");
  EXPECT_EQ(rows[0].resource(), "projects/default/fineTuningJobs/job-1");
  EXPECT_EQ(rows[0].principal(), absl::StrCat("uid:", geteuid()));
  EXPECT_EQ(rows[0].user(), "");
  EXPECT_EQ(rows[0].peer(), "unix");
  EXPECT_EQ(rows[0].code(), "OK");
  EXPECT_EQ(rows[0].reason(), "");
  EXPECT_EQ(rows[0].part(), v1::AUDIT_CALL);
  EXPECT_EQ(rows[0].count(), 1);
  ASSERT_TRUE(SetUser("anna").ok());
  ASSERT_TRUE(Cancel("job-1").ok());
  rows = Rows();
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].rpc(), "FineTuningJobService/CancelFineTuningJob");
  EXPECT_EQ(rows[0].resource(), "job-1");
  EXPECT_EQ(rows[0].user(), "anna");
  EXPECT_EQ(rows[1].resource(), "anna");
  v1::ListAuditRequest request;
  request.set_resource("job-1");
  EXPECT_EQ(Rows(request).size(), 2u);
  request.set_page_size(1);
  EXPECT_EQ(Rows(request).size(), 1u);
  request.set_page_token(next_page_);
  EXPECT_EQ(Rows(request).size(), 1u);
  EXPECT_EQ(next_page_, "");
}

TEST_F(ApiAuditTest, WhoeverLooksLeavesNothing) {
  grpc::ClientContext context;
  Limit(&context);
  v1::ListFineTuningJobsResponse jobs;
  ASSERT_TRUE(jobs_->ListFineTuningJobs(&context, {}, &jobs).ok());
  grpc::ClientContext other;
  Limit(&other);
  v1::WhoAmIResponse caller;
  ASSERT_TRUE(account_stub_->WhoAmI(&other, {}, &caller).ok());
  EXPECT_TRUE(Rows().empty());
}

// The text of a job file may have what only its maker should read.
TEST_F(ApiAuditTest, AFailureSaysWhyAndQuotesNoJobFile) {
  v1::CreateFineTuningJobRequest request;
  request.set_text("model: m\ndataset: d\nhub_token: hf_secret\n");
  v1::FineTuningJob job;
  EXPECT_FALSE(Create(request, &job).ok());
  MustCreate();
  EXPECT_EQ(Cancel("job-1").error_code(), grpc::StatusCode::OK);
  EXPECT_EQ(Cancel("job-1").error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  int failures = 0;
  for (const v1::AuditRecord& row : AwaitRows(4)) {
    EXPECT_FALSE(absl::StrContains(row.DebugString(), "secret"));
    if (row.code() == "OK") continue;
    ++failures;
    const bool precondition = row.code() == "FAILED_PRECONDITION";
    EXPECT_EQ(row.message().empty(), !precondition) << row.DebugString();
    EXPECT_NE(row.reason(), "");
  }
  EXPECT_EQ(failures, 2);
}

// Nobody's calls: all of them, whatever they would have done.
TEST_F(ApiAuditTest, EveryRefusalIsARowAndItsRepeatsAreOneMore) {
  const auto jobs =
      v1::FineTuningJobService::NewStub(server_->ChannelOfNobody());
  constexpr int kTimes = 20;
  for (int i = 0; i < kTimes; ++i) {
    grpc::ClientContext context;
    Limit(&context);
    v1::ListFineTuningJobsResponse list;
    EXPECT_EQ(jobs->ListFineTuningJobs(&context, {}, &list).error_code(),
              grpc::StatusCode::UNAUTHENTICATED);
    grpc::ClientContext watching;
    Limit(&watching);
    auto reader = jobs->WatchFineTuningJobs(&watching, {});
    v1::WatchFineTuningJobsResponse message;
    EXPECT_FALSE(reader->Read(&message));
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
  }
  AwaitRows(2);
  StopServer();
  StartServer({});
  std::map<std::string, int64_t> counts;
  for (const v1::AuditRecord& row : AwaitRows(4)) {
    counts[row.rpc()] += row.count();
    EXPECT_EQ(row.code(), "UNAUTHENTICATED");
    EXPECT_EQ(row.principal(), "");
  }
  EXPECT_EQ(counts["FineTuningJobService/ListFineTuningJobs"], kTimes);
  EXPECT_EQ(counts["FineTuningJobService/WatchFineTuningJobs"], kTimes);
}

TEST_F(ApiAuditTest, AStreamLeavesItsBeginningAndItsEnd) {
  grpc::ClientContext context;
  Limit(&context);
  v1::ExportCheckpointRequest request;
  request.set_source("job-7");
  request.set_output("merged");
  const auto reader = checkpoints_->ExportCheckpoint(&context, request);
  const auto task = engine_->AwaitExportTask();
  auto rows = AwaitRows(1);
  EXPECT_EQ(rows[0].part(), v1::AUDIT_BEGIN);
  EXPECT_EQ(rows[0].resource(), "job-7");
  task->Finish(absl::ResourceExhaustedError("no room"));
  v1::ExportCheckpointResponse message;
  while (reader->Read(&message)) {
  }
  EXPECT_FALSE(reader->Finish().ok());
  rows = AwaitRows(2);
  EXPECT_EQ(rows[0].part(), v1::AUDIT_END);
  EXPECT_EQ(rows[0].code(), "RESOURCE_EXHAUSTED");
  EXPECT_EQ(rows[0].message(), "no room");
  EXPECT_TRUE(rows[0].has_duration_seconds());
  EXPECT_FALSE(rows[1].has_duration_seconds());
}

// The server has room for one connection: the second client is let in once
// nothing is known any more of the first.
TEST_F(ApiAuditTest, WhoeverLeavesBeforeHisCallIsDoneIsInTheRow) {
  StopServer();
  limits_.connections = limits_.connections_admin = 1;
  std::atomic<bool> holds = false;
  absl::Notification begun, go_on;
  StartServer({.fault = [&] {
    if (holds.exchange(false)) {
      begun.Notify();
      go_on.WaitForNotification();
    }
    return absl::OkStatus();
  }});
  const auto connect = [this] {
    grpc::ChannelArguments own;
    own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    own.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
    own.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 100);
    return grpc::CreateCustomChannel("unix:" + socket_,
                                     grpc::InsecureChannelCredentials(), own);
  };
  holds = true;
  auto leaves = std::make_unique<grpc::ClientContext>();
  Limit(leaves.get());
  std::thread first([&] {
    const auto stub = v1::FineTuningJobService::NewStub(connect());
    v1::CreateFineTuningJobRequest request;
    request.set_text(kJobText);
    v1::FineTuningJob job;
    EXPECT_EQ(
        stub->CreateFineTuningJob(leaves.get(), request, &job).error_code(),
        grpc::StatusCode::CANCELLED);
  });
  begun.WaitForNotification();
  leaves->TryCancel();
  first.join();
  leaves.reset();  // and with it the last of the channel
  account_stub_ = v1::AccountService::NewStub(connect());
  grpc::ClientContext context;
  Limit(&context);
  context.set_wait_for_ready(true);
  v1::WhoAmIResponse caller;
  const grpc::Status status = account_stub_->WhoAmI(&context, {}, &caller);
  EXPECT_TRUE(status.ok()) << status.error_message();
  go_on.Notify();
  const auto rows = AwaitRows(1);
  EXPECT_EQ(rows[0].rpc(), "FineTuningJobService/CreateFineTuningJob");
  EXPECT_EQ(rows[0].principal(), absl::StrCat("uid:", geteuid()));
  EXPECT_EQ(rows[0].peer(), "unix");
  EXPECT_EQ(rows[0].code(), "OK");
}

TEST_F(ApiAuditTest, ACallIsAnsweredWhenItsRowIsLost) {
  StopServer();
  std::atomic<bool> full = false;
  StartServer({.fault = [&full] {
    return full ? absl::ResourceExhaustedError("disk full") : absl::OkStatus();
  }});
  full = true;
  grpc::ClientContext context;
  Limit(&context);
  v1::ExportCheckpointRequest request;
  request.set_source("job-7");
  request.set_output("merged");
  const auto reader = checkpoints_->ExportCheckpoint(&context, request);
  engine_->AwaitExportTask()->Finish(std::string("/outputs/merged"));
  v1::ExportCheckpointResponse message;
  while (reader->Read(&message)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(message.path(), "/outputs/merged");
  while (
      !absl::StrContains(Metrics(), "roundhouse_audit_lost_rows_total 2\n")) {
  }
  full = false;
  StopServer();
}

TEST_F(ApiAuditTest, AskingForWhatIsNoResultIsRefused) {
  grpc::ClientContext context;
  Limit(&context);
  v1::ListAuditRequest request;
  request.set_result("denied");
  v1::ListAuditResponse response;
  const grpc::Status status =
      account_stub_->ListAudit(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(absl::StartsWith(status.error_message(), "result: "));
}

}  // namespace
}  // namespace roundhouse
