// PlanService through the gRPC server, over the real planner.
#include "server/api/plan_service.h"

#include <map>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "proto/google/rpc/error_details.pb.h"
#include "proto/google/rpc/status.pb.h"
#include "server/api/api_test_fixture.h"

namespace roundhouse {
namespace {

constexpr char kModels[] = "scheduler/testdata/models/";

class PlanServiceTest : public ApiTestFixture {
 protected:
  static v1::PlanTrainingRequest Request(const std::string& model) {
    v1::PlanTrainingRequest request;
    request.set_model(kModels + model);
    request.set_devices("2xrtx4090");
    request.set_max_length(2048);
    return request;
  }
  grpc::Status Ask(const v1::PlanTrainingRequest& request,
                   v1::PlanTrainingResponse* response) {
    grpc::ClientContext context;
    Limit(&context);
    return plans_->PlanTraining(&context, request, response);
  }
  v1::PlanTrainingResponse Must(const v1::PlanTrainingRequest& request) {
    v1::PlanTrainingResponse response;
    const grpc::Status status = Ask(request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
};

TEST_F(PlanServiceTest, AStepThatFits) {
  v1::PlanTrainingRequest request = Request("qwen3-1.7b");
  request.set_host_memory_bytes(int64_t{100} << 30);
  const v1::PlanTrainingResponse plan = Must(request);
  EXPECT_TRUE(plan.feasible());
  EXPECT_TRUE(plan.trainable());
  EXPECT_EQ(plan.family(), "qwen3");
  EXPECT_EQ(plan.host().state_bytes(), 18 * plan.parameters());
  EXPECT_EQ(plan.trained_parameters(), plan.parameters());
  EXPECT_EQ(plan.micro_batches() * plan.micro_batch_size(), 8);
  EXPECT_EQ(plan.tokens_per_step(), 8 * 2048);
  EXPECT_NEAR(plan.tokens_per_second() * plan.step_seconds(), 8 * 2048, 1e-3);
  ASSERT_EQ(plan.devices_size(), 2);
  double bubble = 0;
  for (const v1::PlannedDevice& device : plan.devices()) {
    const v1::BubbleSeconds& causes = device.bubble();
    const double idle = causes.fill_and_drain() + causes.weights() +
                        causes.gradients() + causes.end_of_step();
    EXPECT_NEAR(device.compute_seconds() + idle, plan.step_seconds(), 1e-6);
    EXPECT_EQ(device.kind(), "rtx4090");
    bubble += idle;
  }
  EXPECT_NEAR(plan.bubble_ratio(), bubble / 2 / plan.step_seconds(), 1e-6);
  EXPECT_GT(plan.longest_sequence(), 2048);
  ASSERT_EQ(plan.sources_size(), 1);
  EXPECT_EQ(plan.sources(0).tflops(), 165.2);
  EXPECT_FALSE(plan.has_timeline());
}

// What this build does not train is planned for all the same.
TEST_F(PlanServiceTest, AMixtureOfExperts) {
  v1::PlanTrainingRequest request = Request("gpt-oss-20b/config.json");
  request.set_method("lora");
  request.set_lora_r(16);
  const v1::PlanTrainingResponse plan = Must(request);
  EXPECT_FALSE(plan.trainable());
  EXPECT_TRUE(plan.feasible());
  EXPECT_EQ(plan.host().base_bytes(), 2 * plan.parameters());
  EXPECT_EQ(plan.host().state_bytes(), 20 * plan.trained_parameters());
}

TEST_F(PlanServiceTest, WhatDoesNotFitIsAnAnswer) {
  v1::PlanTrainingRequest request = Request("qwen3-32b");
  request.set_host_memory_bytes(int64_t{256} << 30);
  const v1::PlanTrainingResponse host = Must(request);
  EXPECT_FALSE(host.feasible());
  EXPECT_EQ(host.host_missing_bytes(),
            host.host().total_bytes() - (int64_t{256} << 30));
  EXPECT_EQ(host.longest_sequence_limit(), v1::SEQUENCE_LIMIT_HOST_MEMORY);
  request = Request("qwen3-32b");
  request.set_max_length(1 << 20);
  const v1::PlanTrainingResponse device = Must(request);
  EXPECT_FALSE(device.feasible());
  EXPECT_EQ(device.device_missing_bytes(),
            device.device_needed_bytes() - (int64_t{24} << 30));
  EXPECT_EQ(device.devices_size(), 0);
  EXPECT_EQ(device.longest_sequence_limit(), v1::SEQUENCE_LIMIT_DEVICE_MEMORY);
}

TEST_F(PlanServiceTest, TheTimelineIsSentWhereItIsAskedFor) {
  v1::PlanTrainingRequest request = Request("qwen3-1.7b");
  request.set_timeline(true);
  const v1::Timeline timeline = Must(request).timeline();
  ASSERT_GT(timeline.intervals_size(), 0);
  std::map<int, std::map<int64_t, int64_t>> by_resource;  // start to end
  for (const v1::TimelineInterval& interval : timeline.intervals()) {
    ASSERT_LT(interval.resource(), timeline.resources_size());
    ASSERT_LT(interval.kind(), timeline.kinds_size());
    EXPECT_GE(interval.length_ns(), 0);
    if (interval.length_ns() == 0) continue;
    by_resource[interval.resource()][interval.start_ns()] =
        interval.start_ns() + interval.length_ns();
  }
  for (const auto& [resource, intervals] : by_resource) {
    int64_t end = 0;
    for (const auto& [start, stop] : intervals) {
      EXPECT_GE(start, end) << timeline.resources(resource);
      end = stop;
    }
  }
}

TEST_F(PlanServiceTest, ErrorsNameTheirField) {
  v1::PlanTrainingRequest request = Request("qwen3-1.7b");
  request.set_devices("8x24GiB");
  v1::PlanTrainingResponse response;
  const grpc::Status status = Ask(request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  google::rpc::BadRequest bad;
  ASSERT_EQ(details.details_size(), 2);
  ASSERT_TRUE(details.details(1).UnpackTo(&bad));
  EXPECT_EQ(bad.field_violations(0).field(), "devices");
  request = Request("nothing");
  EXPECT_EQ(Ask(request, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

// More calls than are taken at a time: some are refused, all are answered.
TEST_F(PlanServiceTest, OnlySoManyWait) {
  constexpr int kCalls = 24;
  std::vector<std::thread> threads;
  std::vector<grpc::StatusCode> codes(kCalls);
  for (int i = 0; i < kCalls; ++i) {
    threads.emplace_back([this, i, &codes] {
      v1::PlanTrainingResponse response;
      codes[i] = Ask(Request("qwen3-1.7b"), &response).error_code();
    });
  }
  int answered = 0, refused = 0;
  for (int i = 0; i < kCalls; ++i) {
    threads[i].join();
    answered += codes[i] == grpc::StatusCode::OK ? 1 : 0;
    refused += codes[i] == grpc::StatusCode::UNAVAILABLE ? 1 : 0;
  }
  EXPECT_EQ(answered + refused, kCalls);
  EXPECT_GE(answered, static_cast<int>(kMaxWaitingPlansEach));
}

TEST(PlanServiceProtoTest, ATimelineThatIsTooLongIsRefused) {
  TrainingPlan plan;
  Interval large;
  large.layer_begin = 510;
  large.layer_end = 511;
  large.micro_batch = 31;
  large.start_ns = int64_t{1} << 50;
  large.end_ns = large.start_ns + (int64_t{1} << 40);
  large.bytes = int64_t{1} << 40;
  plan.forecast.round.intervals.resize(kMaxTimelineIntervals + 1, large);
  EXPECT_TRUE(ToProto(plan, false).ok());
  EXPECT_EQ(ToProto(plan, true).status().code(),
            absl::StatusCode::kResourceExhausted);
  plan.forecast.round.intervals.pop_back();
  const auto longest = ToProto(plan, true);
  ASSERT_TRUE(longest.ok()) << longest.status();
  EXPECT_LT(longest->ByteSizeLong(), size_t{4} << 20);
}

}  // namespace
}  // namespace roundhouse
