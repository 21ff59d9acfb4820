#include "server/api/convert.h"

#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "proto/google/rpc/error_details.pb.h"
#include "proto/google/rpc/status.pb.h"
#include "server/api/history/step_history.h"
#include "server/calls/errors.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

TEST(ConvertTest, StatesAndReasonsHaveTheSameNumbersAndNamesOnTheWire) {
  for (JobState s : AllJobStates()) {
    EXPECT_EQ(v1::JobState_Name(static_cast<v1::JobState>(s)), JobStateName(s));
  }
  EXPECT_EQ(v1::JobState_ARRAYSIZE,
            static_cast<int>(AllJobStates().size()) + 1);
  for (int n = 1; n < v1::JobReason_ARRAYSIZE; ++n) {
    EXPECT_EQ(v1::JobReason_Name(n), JobReasonName(*JobReasonFromNumber(n)));
  }
  EXPECT_FALSE(JobReasonFromNumber(v1::JobReason_ARRAYSIZE).has_value());
}

// But those that nothing is refused for yet.
TEST(ConvertTest, TheGuideSaysWhatEveryReasonMeans) {
  std::ifstream file("docs/guide.md");
  const std::string guide((std::istreambuf_iterator<char>(file)), {});
  for (int n = 1; n < v1::JobReason_ARRAYSIZE; ++n) {
    const JobReason reason = *JobReasonFromNumber(n);
    const bool later =
        reason == JobReason::kRuntimeLimit || reason == JobReason::kQuota;
    const std::string row = absl::StrCat("\n| `", JobReasonName(reason), "` |");
    EXPECT_EQ(guide.find(row) == std::string::npos, later) << row;
  }
}

// Whatever field is new stays out until somebody puts it in.
TEST(ConvertTest, AnOutlineHasTheseFieldsAlone) {
  v1::FineTuningJob job;
  job.set_uid("secret");  // the name of its folder
  job.set_submitted_text("secret");
  job.set_resolved_spec("secret");
  job.set_message("secret");
  job.set_output_name("secret");
  job.set_output_path("secret");
  job.set_last_checkpoint_path("secret");
  job.set_loss(1);
  job.mutable_dataset()->set_sha256("secret");
  job.add_eval_samples()->set_completion("secret");
  job.set_name("projects/vision/fineTuningJobs/job-2");
  job.set_owner("anna");
  job.set_project("vision");
  job.set_state(v1::RUNNING);
  job.set_step(3);
  job.set_total_steps(4);
  job.add_device_use()->set_device(1);
  const v1::FineTuningJob out = Outline(job);
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  out.GetReflection()->ListFields(out, &fields);
  std::set<std::string> names;
  for (const auto* const field : fields) names.insert(field->name());
  EXPECT_EQ(names, (std::set<std::string>{"name", "state", "step",
                                          "total_steps", "device_use", "owner",
                                          "project", "outline"}));
  EXPECT_EQ(out.SerializeAsString().find("secret"), std::string::npos);
}

TEST(ConvertTest, ADevicesTimeAndItsCauses) {
  DeviceInfo info;
  info.index = 3;
  info.compute_seconds = 6;
  info.bubble_seconds = 2;
  info.fenced_seconds = 0.5;
  info.filled_bubble_seconds = 1;
  info.bubble_causes = {{"h2d_wait", 1.5}, {"memory", 0.5}};
  info.product_name = "NVIDIA Test";
  info.uuid = "GPU-a";
  const v1::Device device =
      ToProto(info, "projects/vision/fineTuningJobs/job-2");
  EXPECT_EQ(device.job(), "projects/vision/fineTuningJobs/job-2");
  EXPECT_EQ(device.name(), "devices/3");
  EXPECT_EQ(device.bubble_ratio(), 0.25);
  EXPECT_EQ(device.fenced_seconds(), 0.5);
  EXPECT_EQ(device.filled_bubble_seconds(), 1);
  ASSERT_EQ(device.bubble_causes_size(), 2);
  EXPECT_EQ(device.bubble_causes(0).cause(), "h2d_wait");
  EXPECT_EQ(device.bubble_causes(0).seconds(), 1.5);
  EXPECT_EQ(device.product_name(), "NVIDIA Test");
  EXPECT_EQ(device.uuid(), "GPU-a");
}

TEST(ConvertTest, CreateIsBounded) {
  v1::CreateFineTuningJobRequest request;
  EXPECT_EQ(ErrorField(FromProto(request).status()), "text");
  request.set_text(std::string((1 << 20) + 1, 'x'));
  EXPECT_EQ(ErrorField(FromProto(request).status()), "text");
  request.set_text("x");
  EXPECT_EQ(FromProto(request)->file_name, "job file");
  request.set_request_id("a b");
  EXPECT_EQ(ErrorField(FromProto(request).status()), "request_id");
  request.set_request_id(std::string(65, 'a'));
  EXPECT_EQ(ErrorField(FromProto(request).status()), "request_id");
  request.set_request_id("A-z_9");
  request.set_file_name(std::string(256, 'f'));
  EXPECT_EQ(ErrorField(FromProto(request).status()), "file_name");
}

TEST(ConvertTest, PagesAreBoundedAndTokensOpaque) {
  v1::ListFineTuningJobsRequest request;
  EXPECT_EQ(FromProto(request)->limit, 50);
  request.set_page_size(100000);
  EXPECT_EQ(FromProto(request)->limit, 500);
  request.set_page_size(-1);
  EXPECT_EQ(ErrorField(FromProto(request).status()), "page_size");
  request.set_page_size(1);
  request.set_page_token(PageToken(17));
  EXPECT_EQ(FromProto(request)->before, 17);
  for (const char* bad : {"17", "!!", "YWZ0ZXI6LTE="}) {
    request.set_page_token(bad);
    EXPECT_EQ(ErrorField(FromProto(request).status()), "page_token") << bad;
  }
  request.clear_page_token();
  request.add_states(static_cast<v1::JobState>(99));
  EXPECT_EQ(ErrorField(FromProto(request).status()), "states");
}

TEST(ConvertTest, EveryTimeIsAValidTimestamp) {
  struct Case {
    absl::Time time;
    int64_t seconds;
    int32_t nanos;
  };
  for (const Case& c : std::vector<Case>{
           {absl::FromUnixMicros(0), 0, 0},
           {absl::FromUnixMicros(1234567), 1, 234567000},
           {absl::FromUnixMicros(-1), -1, 999'999'000},
           {absl::FromUnixMicros(-1'000'000), -1, 0},
           {absl::FromUnixMicros(-1'500'000), -2, 500'000'000},
           {absl::InfinitePast(), -62135596800, 0},
           {absl::FromUnixMicros(std::numeric_limits<int64_t>::min()),
            -62135596800, 0},
           {absl::FromUnixMicros(std::numeric_limits<int64_t>::max()),
            253402300799, 999'999'999},
           {absl::InfiniteFuture(), 253402300799, 999'999'999}}) {
    const google::protobuf::Timestamp out = ToProto(c.time);
    EXPECT_EQ(out.seconds(), c.seconds) << c.time;
    EXPECT_EQ(out.nanos(), c.nanos) << c.time;
  }
}

TEST(ConvertTest, AJobKeepsEveryField) {
  JobRecord job;
  job.id = "job-2";
  job.owner = "anna";
  job.project = "vision";
  job.state = JobState::kFailed;
  job.reason = JobReason::kStorageFull;
  job.create_time = absl::FromUnixMicros(1234567);
  job.dataset = DatasetCounts{.train_truncated = 4};
  job.progress.device_use = {
      {.device = 2, .compute_seconds = 1, .bubble_seconds = 3}};
  const v1::FineTuningJob out = ToProto(job);
  EXPECT_EQ(out.name(), "projects/vision/fineTuningJobs/job-2");
  EXPECT_EQ(out.owner(), "anna");
  EXPECT_EQ(out.project(), "vision");
  EXPECT_EQ(out.state(), v1::FAILED);
  EXPECT_EQ(out.reason(), v1::STORAGE_FULL);
  EXPECT_EQ(out.create_time().seconds(), 1);
  EXPECT_EQ(out.create_time().nanos(), 234567000);
  EXPECT_FALSE(out.has_start_time());
  EXPECT_EQ(out.dataset().train_truncated(), 4);
  EXPECT_FALSE(out.dataset().has_bigram_validation_loss());
  EXPECT_EQ(out.device_use(0).bubble_ratio(), 0.75);
  EXPECT_FALSE(out.has_loss());
}

TEST(ConvertTest, OnlyAPausedJobHasMemoryToSpeakOf) {
  JobRecord job;
  job.progress.memory_kept = true;
  for (const JobState state : AllJobStates()) {
    job.state = state;
    EXPECT_EQ(ToProto(job).memory(), state == JobState::kPaused
                                         ? v1::KEPT
                                         : v1::JOB_MEMORY_UNSPECIFIED);
  }
  job.state = JobState::kPaused;
  job.progress.memory_kept = false;
  EXPECT_EQ(ToProto(job).memory(), v1::GIVEN_BACK);
}

TEST(ConvertTest, HowMuchIsReadIsSaidWhileItIs) {
  JobRecord job;
  job.progress.data_read = 0.5;
  for (const JobState state : AllJobStates()) {
    job.state = state;
    EXPECT_EQ(ToProto(job).data_read(),
              state == JobState::kValidating ? 0.5 : 0);
  }
}

TEST(ErrorsTest, UnavailableSaysWhenToRetry) {
  const grpc::Status status = ToGrpcStatus(absl::UnavailableError("busy"));
  google::rpc::Status all;
  ASSERT_TRUE(all.ParseFromString(status.error_details()));
  google::rpc::RetryInfo retry;
  ASSERT_EQ(all.details_size(), 2);
  EXPECT_TRUE(all.details(1).UnpackTo(&retry));
  EXPECT_EQ(retry.retry_delay().seconds(), 1);
  EXPECT_EQ(all.details(0).type_url(),
            "type.googleapis.com/google.rpc.ErrorInfo");
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
}

TEST(StepHistoryTest, OnlyMetricsLines) {
  EXPECT_TRUE(ParseMetricsLine("{\"step\":1,\"loss\":2}").has_value());
  for (const char* bad :
       {"", "{", "[]", "{\"step\":1}", "{\"loss\":1}",
        "{\"step\":1.5,\"loss\":1}", "\xff", "{\"step\":\"1\",\"loss\":1}"}) {
    EXPECT_FALSE(ParseMetricsLine(bad).has_value()) << bad;
  }
}

}  // namespace
}  // namespace roundhouse
