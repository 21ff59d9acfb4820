// Through a real server: what a client's calls leave in the metrics.
#include "server/door/call_metrics.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/generic/generic_stub.h"
#include "server/api/api_test_fixture.h"

namespace roundhouse {
namespace {

class CallMetricsTest : public ApiTestFixture {
 protected:
  static std::string Handled(const char* method, const char* code) {
    return absl::StrCat("grpc_server_handled_total{grpc_code=\"", code,
                        "\",grpc_method=\"", method,
                        "\",grpc_service=\"roundhouse.v1."
                        "FineTuningJobService\"} ");
  }
  bool Shows(const std::string& text) const {
    return absl::StrContains(metrics_->Render(), text);
  }
};

TEST_F(CallMetricsTest, CallsAreCountedByMethodAndCode) {
  for (int i = 0; i < 3; ++i) {
    grpc::ClientContext context;
    Limit(&context);
    v1::ListFineTuningJobsResponse response;
    ASSERT_TRUE(jobs_->ListFineTuningJobs(&context, {}, &response).ok());
  }
  grpc::ClientContext context;
  Limit(&context);
  v1::GetFineTuningJobRequest request;
  request.set_name("projects/default/fineTuningJobs/job-9");
  v1::FineTuningJob job;
  EXPECT_EQ(jobs_->GetFineTuningJob(&context, request, &job).error_code(),
            grpc::StatusCode::NOT_FOUND);
  EXPECT_TRUE(Shows(Handled("ListFineTuningJobs", "OK") + "3"))
      << metrics_->Render();
  EXPECT_TRUE(Shows(Handled("GetFineTuningJob", "NOT_FOUND") + "1"))
      << metrics_->Render();
  EXPECT_TRUE(Shows(
      "grpc_server_handling_seconds_count{grpc_method=\"ListFineTuningJobs\","
      "grpc_service=\"roundhouse.v1.FineTuningJobService\"} 3"))
      << metrics_->Render();
}

TEST_F(CallMetricsTest, StreamsAreCountedWhenTheyEnd) {
  grpc::ClientContext context;
  Limit(&context);
  v1::WatchFineTuningJobsRequest request;
  request.set_name("projects/default/fineTuningJobs/job-9");
  auto stream = jobs_->WatchFineTuningJobs(&context, request);
  v1::WatchFineTuningJobsResponse event;
  while (stream->Read(&event)) {
  }
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_TRUE(Shows(Handled("WatchFineTuningJobs", "NOT_FOUND") + "1"))
      << metrics_->Render();
}

// Names that clients make up become no series, and take nobody's place.
TEST_F(CallMetricsTest, MethodsThatAreNotThereAreOneSeries) {
  grpc::GenericStub stub(channel_);
  for (int i = 0; i < 70; ++i) {
    grpc::ClientContext context;
    Limit(&context);
    grpc::CompletionQueue queue;
    grpc::ByteBuffer empty(nullptr, 0), answer;
    auto call = stub.PrepareUnaryCall(
        &context, absl::StrCat("/made.up.Service", i, "/Method"), empty,
        &queue);
    call->StartCall();
    grpc::Status status;
    call->Finish(&answer, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    ASSERT_TRUE(queue.Next(&tag, &ok));
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  }
  EXPECT_TRUE(
      Shows("grpc_server_handled_total{grpc_code=\"UNIMPLEMENTED\","
            "grpc_method=\"unknown\",grpc_service=\"unknown\"} 70"))
      << metrics_->Render();
  EXPECT_FALSE(Shows("made.up"));
  MustCreate();
  EXPECT_TRUE(Shows(Handled("CreateFineTuningJob", "OK") + "1"));
}

}  // namespace
}  // namespace roundhouse
