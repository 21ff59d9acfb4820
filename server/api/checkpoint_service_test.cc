// CheckpointService through the gRPC server, over an engine whose exports the
// test moves on.
#include "server/api/checkpoint_service.h"

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "server/api/api_test_fixture.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

class CheckpointServiceTest : public ApiTestFixture {
 protected:
  static v1::ExportCheckpointRequest Request() {
    v1::ExportCheckpointRequest request;
    request.set_source("job-7");
    request.set_kind(v1::EXPORT_KIND_MERGED);
    request.set_dtype("bf16");
    request.set_output("merged");
    return request;
  }
  // Begins a call; its reader lives as long as the context.
  auto Begin(const v1::ExportCheckpointRequest& request) {
    Limit(&context_);
    return checkpoints_->ExportCheckpoint(&context_, request);
  }
  grpc::Status Refusal(const v1::ExportCheckpointRequest& request) {
    grpc::ClientContext context;
    Limit(&context);
    const auto reader = checkpoints_->ExportCheckpoint(&context, request);
    v1::ExportCheckpointResponse message;
    EXPECT_FALSE(reader->Read(&message));
    return reader->Finish();
  }
  grpc::ClientContext context_;
};

TEST_F(CheckpointServiceTest, ProgressAndThenThePath) {
  const auto reader = Begin(Request());
  const auto task = engine_->AwaitExportTask();
  const ExportRequest asked = engine_->export_request();
  EXPECT_EQ(asked.source, "job-7");
  EXPECT_EQ(asked.kind, ExportKind::kMerged);
  EXPECT_EQ(asked.dtype, DType::kBF16);
  EXPECT_EQ(asked.output, "merged");
  task->SetProgress(
      {.kind = ExportKind::kMerged, .done_bytes = 5, .total_bytes = 9});
  v1::ExportCheckpointResponse message;
  ASSERT_TRUE(reader->Read(&message));
  EXPECT_EQ(message.kind(), v1::EXPORT_KIND_MERGED);
  EXPECT_EQ(message.done_bytes(), 5);
  EXPECT_EQ(message.total_bytes(), 9);
  EXPECT_EQ(message.path(), "");
  task->SetProgress(
      {.kind = ExportKind::kMerged, .done_bytes = 9, .total_bytes = 9});
  task->Finish(std::string("/outputs/merged"));
  v1::ExportCheckpointResponse last;
  while (reader->Read(&message)) last = message;
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(last.path(), "/outputs/merged");
  EXPECT_EQ(last.done_bytes(), 9);
}

TEST_F(CheckpointServiceTest, ItsErrorIsTheCalls) {
  const auto reader = Begin(Request());
  engine_->AwaitExportTask()->Finish(
      FieldError(absl::StatusCode::kAlreadyExists, FieldReason::kInvalidValue,
                 "output", "/x: is there already"));
  v1::ExportCheckpointResponse message;
  EXPECT_FALSE(reader->Read(&message));
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(status.error_message(), "output: /x: is there already");
}

TEST_F(CheckpointServiceTest, ACallThatIsGoneCancelsTheExport) {
  const auto reader = Begin(Request());
  const auto task = engine_->AwaitExportTask();
  EXPECT_FALSE(task->cancelled());
  context_.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  while (!task->cancelled()) std::this_thread::yield();
}

TEST_F(CheckpointServiceTest, BadRequestsNameTheField) {
  const struct {
    const char* field;
    void (*change)(v1::ExportCheckpointRequest*);
  } cases[] = {
      {"source", [](auto* r) { r->clear_source(); }},
      {"output", [](auto* r) { r->clear_output(); }},
      {"output", [](auto* r) { r->set_output(std::string(5000, 'x')); }},
      {"source", [](auto* r) { r->set_source(std::string("a\0b", 3)); }},
      {"dtype", [](auto* r) { r->set_dtype("int8"); }},
      {"kind", [](auto* r) { r->set_kind(static_cast<v1::ExportKind>(9)); }}};
  for (const auto& [field, change] : cases) {
    v1::ExportCheckpointRequest request = Request();
    change(&request);
    const grpc::Status status = Refusal(request);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_TRUE(absl::StartsWith(status.error_message(), field))
        << status.error_message();
  }
  EXPECT_EQ(engine_->export_request().source, "");
}

}  // namespace
}  // namespace roundhouse
