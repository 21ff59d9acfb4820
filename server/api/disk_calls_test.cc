// Calls about the disk over a socket: what comes in is checked, and what goes
// out says it all.
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"
#include "server/api/api_test_fixture.h"

namespace roundhouse {
namespace {

class DiskCallsTest : public ApiTestFixture {
 protected:
  grpc::Status Delete(const v1::DeleteFineTuningJobRequest& request,
                      v1::DeleteFineTuningJobResponse* response) {
    grpc::ClientContext context;
    Limit(&context);
    return jobs_->DeleteFineTuningJob(&context, request, response);
  }
  grpc::Status Old(const v1::ListOldCheckpointsRequest& request,
                   v1::ListOldCheckpointsResponse* response) {
    grpc::ClientContext context;
    Limit(&context);
    return checkpoints_->ListOldCheckpoints(&context, request, response);
  }
  grpc::Status DeleteSteps(const v1::DeleteCheckpointsRequest& request,
                           v1::DeleteCheckpointsResponse* response) {
    grpc::ClientContext context;
    Limit(&context);
    return checkpoints_->DeleteCheckpoints(&context, request, response);
  }
  grpc::Status Usage(const v1::GetDiskUsageRequest& request,
                     v1::GetDiskUsageResponse* response) {
    grpc::ClientContext context;
    Limit(&context);
    return system_->GetDiskUsage(&context, request, response);
  }
  std::vector<std::string> Audited() {
    grpc::ClientContext context;
    Limit(&context);
    v1::ListAuditResponse response;
    EXPECT_TRUE(account_stub_->ListAudit(&context, {}, &response).ok());
    std::vector<std::string> calls;
    for (const v1::AuditRecord& record : response.records()) {
      calls.push_back(record.rpc() + " " + record.resource());
    }
    return calls;
  }
};

TEST_F(DiskCallsTest, WhatWouldGoIsAskedAndThenDone) {
  MustCreate();
  std::vector<DeleteJobRequest> asked;
  disk_.delete_job = [&](const DeleteJobRequest& request) {
    asked.push_back(request);
    return DeletedJob{.parts = {{.kind = DiskKind::kCheckpoint,
                                 .name = "a\xff",
                                 .owner = "anna",
                                 .project = "vision",
                                 .bytes = 12,
                                 .step = 3,
                                 .partial = true}},
                      .kept_output = DiskPart{.kind = DiskKind::kOutput},
                      .kept_output_path = "/o",
                      .left = "why"};
  };
  v1::DeleteFineTuningJobRequest request;
  request.set_name("job-1");
  request.set_validate_only(true);
  v1::DeleteFineTuningJobResponse response;
  ASSERT_TRUE(Delete(request, &response).ok());
  ASSERT_EQ(response.parts_size(), 1);
  EXPECT_EQ(response.parts(0).kind(), v1::DISK_KIND_CHECKPOINT);
  EXPECT_EQ(response.parts(0).name(), "a\\xff");
  EXPECT_EQ(response.parts(0).owner(), "anna");
  EXPECT_EQ(response.parts(0).project(), "vision");
  EXPECT_EQ(response.parts(0).size_bytes(), 12);
  EXPECT_EQ(response.parts(0).step(), 3);
  EXPECT_TRUE(response.parts(0).partial());
  EXPECT_EQ(response.kept_output().kind(), v1::DISK_KIND_OUTPUT);
  EXPECT_EQ(response.kept_output_path(), "/o");
  EXPECT_EQ(response.left(), "why");
  // Whoever only asks leaves nothing in the audit.
  const std::string made =
      "FineTuningJobService/CreateFineTuningJob "
      "projects/default/fineTuningJobs/job-1";
  EXPECT_EQ(Audited(), std::vector<std::string>{made});
  request.set_validate_only(false);
  request.set_output(true);
  ASSERT_TRUE(Delete(request, &response).ok());
  EXPECT_EQ(Audited(),
            (std::vector<std::string>{
                "FineTuningJobService/DeleteFineTuningJob job-1", made}));
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_EQ(asked[0].job.id, "job-1");
  EXPECT_TRUE(asked[0].look_only && !asked[0].output);
  EXPECT_TRUE(!asked[1].look_only && asked[1].output);
  EXPECT_EQ(asked[1].who.substr(0, 4), "uid:");
  request.set_name("job-9");
  EXPECT_EQ(Delete(request, &response).error_code(),
            grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(asked.size(), 2u);
}

TEST_F(DiskCallsTest, OldCheckpointsAreAskedForWithinLimits) {
  OldCheckpointsQuery asked;
  disk_.old_checkpoints = [&](const OldCheckpointsQuery& query) {
    asked = query;
    return OldCheckpoints{
        .checkpoints = {{.job_id = "job-1",
                         .owner = "anna",
                         .project = "vision",
                         .step = 4,
                         .bytes = 10,
                         .create_time = absl::FromUnixSeconds(9)}},
        .next_before_job = 7};
  };
  v1::ListOldCheckpointsRequest request;
  request.set_keep(2);
  request.set_older_than_seconds(60);
  request.set_project("vision");
  request.set_everybody(true);
  v1::ListOldCheckpointsResponse response;
  const absl::Time before = absl::Now();
  ASSERT_TRUE(Old(request, &response).ok());
  EXPECT_EQ(asked.keep, 2);
  EXPECT_TRUE(asked.everybody);
  EXPECT_EQ(asked.project, "vision");
  EXPECT_GE(asked.before, before - absl::Seconds(60));
  EXPECT_LE(asked.before, absl::Now() - absl::Seconds(60));
  EXPECT_FALSE(asked.before_job.has_value());
  ASSERT_EQ(response.checkpoints_size(), 1);
  const v1::Checkpoint& one = response.checkpoints(0);
  EXPECT_EQ(one.job(), "projects/vision/fineTuningJobs/job-1");
  EXPECT_EQ(one.step(), 4);
  EXPECT_EQ(one.size_bytes(), 10);
  EXPECT_EQ(one.create_time().seconds(), 9);
  EXPECT_EQ(one.owner(), "anna");
  request.set_page_token(response.next_page_token());
  ASSERT_TRUE(Old(request, &response).ok());
  EXPECT_EQ(asked.before_job, 7);
  request.set_older_than_seconds(0);
  ASSERT_TRUE(Old(request, &response).ok());
  EXPECT_EQ(asked.before, absl::InfiniteFuture());
  for (const auto& break_it :
       std::vector<void (*)(v1::ListOldCheckpointsRequest&)>{
           [](auto& broken) { broken.set_keep(-1); },
           [](auto& broken) { broken.set_older_than_seconds(-1); },
           [](auto& broken) { broken.set_page_token("x"); }}) {
    v1::ListOldCheckpointsRequest broken = request;
    break_it(broken);
    EXPECT_EQ(Old(broken, &response).error_code(),
              grpc::StatusCode::INVALID_ARGUMENT);
  }
}

TEST_F(DiskCallsTest, StepsAreNamedOnce) {
  MustCreate();
  std::vector<int64_t> asked;
  disk_.delete_checkpoints = [&](const DeleteCheckpointsRequest& request) {
    asked = request.steps;
    return DeletedCheckpoints{
        .checkpoints = {{.job_id = "job-1", .project = "default", .step = 2}},
        .left = "why"};
  };
  v1::DeleteCheckpointsRequest request;
  request.set_name("job-1");
  v1::DeleteCheckpointsResponse response;
  EXPECT_EQ(DeleteSteps(request, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  for (const int64_t step : {4, 2, 4}) request.add_steps(step);
  ASSERT_TRUE(DeleteSteps(request, &response).ok());
  EXPECT_EQ(asked, (std::vector<int64_t>{2, 4}));
  EXPECT_EQ(response.checkpoints(0).step(), 2);
  EXPECT_EQ(response.left(), "why");
  for (size_t i = 0; i < kMaxDeletedCheckpoints; ++i) {
    request.add_steps(static_cast<int64_t>(i));
  }
  EXPECT_EQ(DeleteSteps(request, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(DiskCallsTest, UsageComesInPages) {
  DiskUsageQuery asked;
  disk_.usage = [&](const DiskUsageQuery& query) {
    asked = query;
    return DiskUsagePage{
        .parts = {{.kind = DiskKind::kStore, .bytes = 5}},
        .next_page_token = query.page_token.empty() ? "exports:a\xff" : "",
        .disk_free_bytes = 7,
        .disk_total_bytes = 9};
  };
  v1::GetDiskUsageRequest request;
  request.set_project("vision");
  v1::GetDiskUsageResponse response;
  ASSERT_TRUE(Usage(request, &response).ok());
  EXPECT_EQ(asked.project, "vision");
  EXPECT_TRUE(asked.caller.admin);
  EXPECT_EQ(response.parts(0).kind(), v1::DISK_KIND_STORE);
  EXPECT_EQ(response.parts(0).size_bytes(), 5);
  EXPECT_EQ(response.disk_free_bytes(), 7);
  EXPECT_EQ(response.disk_total_bytes(), 9);
  request.set_page_token(response.next_page_token());
  ASSERT_TRUE(Usage(request, &response).ok());
  EXPECT_EQ(asked.page_token, "exports:a\xff");
  EXPECT_EQ(response.next_page_token(), "");
  request.set_page_token("!");
  EXPECT_EQ(Usage(request, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

// Whoever makes a project of that name later would have them.
TEST_F(DiskCallsTest, AProjectWhoseResultsAreThereStays) {
  const auto call = [this](const auto method, const auto& request,
                           auto* response) {
    grpc::ClientContext context;
    Limit(&context);
    return (account_stub_.get()->*method)(&context, request, response);
  };
  v1::AddProjectRequest add;
  add.set_project("vision");
  v1::Project project;
  ASSERT_TRUE(call(&v1::AccountService::Stub::AddProject, add, &project).ok());
  std::vector<std::string> asked;
  std::string left = "/state/outputs/dates";
  disk_.output_of = [&](const std::string& of) {
    asked.push_back(of);
    return left;
  };
  const auto remove = [&](const std::string& name) {
    v1::RemoveProjectRequest request;
    request.set_project(name);
    v1::RemoveProjectResponse response;
    return call(&v1::AccountService::Stub::RemoveProject, request, &response);
  };
  const grpc::Status refused = remove("vision");
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(refused.error_message(),
            "project: vision has results or exports, /state/outputs/dates for "
            "one; move them out of that folder first");
  EXPECT_EQ(remove("vison").error_code(), grpc::StatusCode::NOT_FOUND);
  left = "";
  EXPECT_TRUE(remove("vision").ok());
  EXPECT_EQ(asked, (std::vector<std::string>{"vision", "vision"}));
}

}  // namespace
}  // namespace roundhouse
