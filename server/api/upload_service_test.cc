// Uploads over the socket: what comes in is checked, and who may do what.
#include "server/api/upload_service.h"

#include <unistd.h>

#include <memory>
#include <string>

#include "base/crc32c.h"
#include "base/files/durable_file.h"
#include "gtest/gtest.h"
#include "server/api/api_test_fixture.h"
#include "server/limits/limit_check.h"
#include "server/limits/limit_table.h"

namespace roundhouse {
namespace {

class UploadServiceTest : public ApiTestFixture {
 protected:
  using Stub = v1::UploadService::Stub;

  template <typename Request, typename Response>
  grpc::Status Call(grpc::Status (Stub::*rpc)(grpc::ClientContext*,
                                              const Request&, Response*),
                    const Request& request, Response* response) {
    grpc::ClientContext context;
    Limit(&context);
    return (upload_stub_.get()->*rpc)(&context, request, response);
  }
  static v1::CreateUploadRequest Request(const std::string& text) {
    v1::CreateUploadRequest request;
    request.set_kind(v1::UPLOAD_KIND_DATASET);
    request.set_name("dates");
    v1::UploadedFile* const file = request.add_files();
    file->set_name("a.jsonl");
    file->set_size_bytes(static_cast<int64_t>(text.size()));
    file->set_sha256(Sha256Of(text));
    return request;
  }
  grpc::Status Chunk(const std::string& id, int64_t offset,
                     const std::string& data, v1::UploadChunkResponse* out) {
    v1::UploadChunkRequest request;
    request.set_id(id);
    request.set_offset(offset);
    request.set_data(data);
    request.set_crc32c(Crc32c(data));
    return Call(&Stub::UploadChunk, request, out);
  }
  grpc::Status Delete(const std::string& id) {
    v1::DeleteUploadRequest request;
    request.set_id(id);
    v1::DeleteUploadResponse response;
    return Call(&Stub::DeleteUpload, request, &response);
  }
  v1::Upload MustUpload(const std::string& text) {
    v1::Upload upload;
    EXPECT_TRUE(Call(&Stub::CreateUpload, Request(text), &upload).ok());
    v1::UploadChunkResponse taken;
    EXPECT_TRUE(Chunk(upload.id(), 0, text, &taken).ok());
    v1::FinishUploadRequest finish;
    finish.set_id(upload.id());
    EXPECT_TRUE(Call(&Stub::FinishUpload, finish, &upload).ok());
    return upload;
  }
};

TEST_F(UploadServiceTest, ADatasetArrives) {
  v1::Upload upload;
  ASSERT_TRUE(Call(&Stub::CreateUpload, Request("abcdef"), &upload).ok());
  EXPECT_EQ(upload.state(), v1::UPLOAD_STATE_ARRIVING);
  EXPECT_EQ(upload.received_bytes(0), 0);
  v1::UploadChunkResponse taken;
  ASSERT_TRUE(Chunk(upload.id(), 0, "abc", &taken).ok());
  EXPECT_EQ(taken.received_bytes(), 3);
  v1::Upload again;
  ASSERT_TRUE(Call(&Stub::CreateUpload, Request("abcdef"), &again).ok());
  EXPECT_EQ(again.id(), upload.id());
  EXPECT_EQ(again.received_bytes(0), 3);
  v1::FinishUploadRequest finish;
  finish.set_id(upload.id());
  EXPECT_EQ(Call(&Stub::FinishUpload, finish, &upload).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  ASSERT_TRUE(Chunk(upload.id(), 3, "def", &taken).ok());
  ASSERT_TRUE(Call(&Stub::FinishUpload, finish, &upload).ok());
  EXPECT_EQ(upload.state(), v1::UPLOAD_STATE_FINISHED);
  EXPECT_EQ(upload.version(), 1);
  EXPECT_EQ(upload.project(), "default");
  v1::ListUploadsResponse list;
  ASSERT_TRUE(Call(&Stub::ListUploads, v1::ListUploadsRequest(), &list).ok());
  ASSERT_EQ(list.uploads_size(), 1);
  EXPECT_EQ(list.uploads(0).size_bytes(), 6);
  EXPECT_EQ(list.uploads(0).files_size(), 0);
  EXPECT_TRUE(Delete(upload.id()).ok());
  EXPECT_EQ(Delete(upload.id()).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(UploadServiceTest, WhatIsDamagedOnItsWayIsNotTaken) {
  v1::Upload upload;
  ASSERT_TRUE(Call(&Stub::CreateUpload, Request("abcdef"), &upload).ok());
  v1::UploadChunkRequest request;
  request.set_id(upload.id());
  request.set_data("abc");
  request.set_crc32c(Crc32c("abd"));
  v1::UploadChunkResponse taken;
  EXPECT_EQ(Call(&Stub::UploadChunk, request, &taken).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  ASSERT_TRUE(Chunk(upload.id(), 0, "abc", &taken).ok());
}

TEST_F(UploadServiceTest, FieldsAreChecked) {
  v1::Upload upload;
  v1::CreateUploadRequest request = Request("a");
  request.set_kind(v1::UPLOAD_KIND_UNSPECIFIED);
  EXPECT_EQ(Call(&Stub::CreateUpload, request, &upload).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  request = Request("a");
  request.mutable_files(0)->set_size_bytes(-1);
  EXPECT_EQ(Call(&Stub::CreateUpload, request, &upload).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  request = Request("a");
  request.mutable_files(0)->set_name("../a");
  const grpc::Status status = Call(&Stub::CreateUpload, request, &upload);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(),
            "files: file name \"../a\" has a part that begins with a '.'");
}

// What uploads hold counts where an admin looks, and against the limits.
TEST_F(UploadServiceTest, TheTableOfLimitsKnowsUploads) {
  MustUpload("abcdef");
  grpc::ClientContext context, listing;
  Limit(&context);
  Limit(&listing);
  v1::SetLimitRequest set;
  set.set_subject("project:default");
  set.set_limit("disk_bytes");
  set.set_value(10'000);
  v1::Limit limit;
  ASSERT_TRUE(account_stub_->SetLimit(&context, set, &limit).ok());
  v1::ListLimitsResponse list;
  ASSERT_TRUE(account_stub_->ListLimits(&listing, {}, &list).ok());
  bool found = false;
  for (const v1::Limit& one : list.limits()) {
    if (one.limit() != "disk_bytes") continue;
    found = true;
    EXPECT_EQ(one.used(), static_cast<int64_t>(kMinFileBytes));
  }
  EXPECT_TRUE(found);
}

TEST_F(UploadServiceTest, ANewOneIsHeldAgainstTheTableOfLimits) {
  const auto table = *LimitTable::Load(store_.get());
  LimitCheck limits(table.get(), store_.get());
  limits.SetOtherBytes([](Database*, const Counted& of) {
    return of.project == "default" ? 600 : 100;
  });
  const Caller anna{.user = "anna", .projects = {{"default", Role::kMember}}};
  const NewUpload upload{.name = "x",
                         .project = "default",
                         .owner = "anna",
                         .files = {{"a.jsonl.gz", 300, ""}}};
  const auto set = [&](const std::string& subject, const std::string& limit,
                       int64_t value) {
    ASSERT_TRUE(table->Set(*accounts_->list(), subject, limit, value).ok());
  };
  const auto check = [&](uint64_t bytes) {
    return CheckLimits(limits, anna, upload, bytes);
  };
  EXPECT_TRUE(check(1'000).ok());
  set("everybody", "disk_bytes", 500);
  EXPECT_TRUE(check(400).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(check(401)));
  set("project:default", "disk_bytes", 900);
  EXPECT_TRUE(check(300).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(check(301))) << check(301);
  set("everybody", "unpacked_bytes", 299);
  const absl::Status over = check(1);
  EXPECT_TRUE(absl::IsResourceExhausted(over));
  EXPECT_NE(std::string(over.message()).find("unpacked_bytes"),
            std::string::npos);
  EXPECT_TRUE(CheckLimits(limits, {.admin = true}, upload, 1'000).ok());
}

// The gate's matrix says who makes the calls; this, on what.
TEST(UploadRightsTest, AnUploadIsItsOwnersAndItsProjects) {
  const UploadRecord record{.id = "1",
                            .project = "default",
                            .name = "x",
                            .owner = "mary",
                            .files = std::make_shared<const UploadedFiles>()};
  const Caller stranger{.user = "ella", .projects = {{"x", Role::kMember}}};
  const Caller viewer{.user = "vera", .projects = {{"default", Role::kViewer}}};
  const Caller member{.user = "otto", .projects = {{"default", Role::kMember}}};
  const Caller owner{.user = "mary", .projects = {{"default", Role::kMember}}};
  const Caller demoted{.user = "mary",
                       .projects = {{"default", Role::kViewer}}};
  EXPECT_TRUE(absl::IsNotFound(CheckMaySee(stranger, record)));
  EXPECT_TRUE(absl::IsNotFound(CheckMayChange(stranger, record)));
  EXPECT_TRUE(CheckMaySee(viewer, record).ok());
  for (const Caller& caller : {viewer, member, demoted}) {
    EXPECT_TRUE(absl::IsPermissionDenied(CheckMayChange(caller, record)))
        << caller.user;
  }
  EXPECT_TRUE(CheckMayChange(owner, record).ok());
  EXPECT_TRUE(CheckMayChange({.admin = true}, record).ok());
}

TEST_F(UploadServiceTest, UploadsOfAUidBecomeTheUsers) {
  const v1::Upload upload = MustUpload("text");
  EXPECT_EQ(upload.owner(), "uid:" + std::to_string(geteuid()));
  ASSERT_TRUE(
      accounts_
          ->SetUser({.name = "anna", .uid = geteuid(), .role = Role::kAdmin})
          .ok());
  v1::ListUploadsResponse list;
  ASSERT_TRUE(Call(&Stub::ListUploads, v1::ListUploadsRequest(), &list).ok());
  EXPECT_EQ(list.uploads(0).owner(), "anna");
  EXPECT_TRUE(Delete(upload.id()).ok());
}

}  // namespace
}  // namespace roundhouse
