#include "tests/bench/real_time_forecast.h"

#include "gtest/gtest.h"

namespace roundhouse::bench {
namespace {

FakeJobOptions Options() {
  FakeJobOptions options;
  ModelCosts& costs = options.costs;
  costs.name = "small";
  costs.layers = 6;
  costs.forward_ns = 10'000'000;
  costs.backward_ns = 20'000'000;
  costs.head_forward_ns = 15'000'000;
  costs.head_backward_ns = 25'000'000;
  costs.hop_ns = 100'000;
  costs.layer_bytes = costs.layer_gradient_bytes = 1'000'000;
  costs.head_bytes = costs.head_gradient_bytes = 2'000'000;
  costs.tokens = costs.hidden = costs.heads = costs.kv_heads = 4;
  costs.head_dim = costs.inner = costs.experts_per_token = 1;
  options.devices = 4;
  options.micro_batches = 8;
  options.steps = 4;
  return options;
}

TEST(RealTimeForecastTest, OneDeviceHasHardlyAnyBubble) {
  FakeJobOptions options = Options();
  options.devices = 1;
  options.plan = AllWidePlan(options);
  const auto forecast = ForecastRealTime(options);
  ASSERT_TRUE(forecast.ok()) << forecast.status();
  // (6 * 40 + 40) ms of 8 micro-batches.
  EXPECT_NEAR(forecast->step_ms, 2240, 10);
  EXPECT_NEAR(forecast->bubble_percent, 0, 0.5);
}

// Two passes move 8 bytes more a parameter of all that keep no sum: not of the
// embedding, whose matrix is the head's, too.
TEST(RealTimeForecastTest, WithoutClippingItIsOnePass) {
  FakeJobOptions options = Options();
  options.plan = AllWidePlan(options);
  const auto clipped = ForecastRealTime(options);
  options.clip = false;
  const auto one_pass = ForecastRealTime(options);
  ASSERT_TRUE(clipped.ok() && one_pass.ok()) << one_pass.status();
  EXPECT_NEAR(clipped->host_bytes - one_pass->host_bytes, 8 * 6 * 500'000, 1);
  // Host memory is not what these steps wait for.
  EXPECT_NEAR(one_pass->step_ms, clipped->step_ms, 1);
}

// Each slot on one device, a pipeline that fills and drains.
TEST(RealTimeForecastTest, WhatIsSearchedIsForecastToBeFaster) {
  FakeJobOptions options = Options();
  options.plan = AllWidePlan(options);
  options.plan.split.clear();
  const auto narrow = ForecastRealTime(options);
  const auto searched = SearchedPlan(options);
  ASSERT_TRUE(narrow.ok() && searched.ok()) << searched.status();
  options.plan = *searched;
  const auto forecast = ForecastRealTime(options);
  ASSERT_TRUE(forecast.ok()) << forecast.status();
  EXPECT_LT(forecast->step_ms, narrow->step_ms);
  EXPECT_LT(forecast->bubble_percent, narrow->bubble_percent);
  EXPECT_GT(narrow->bubble_percent, 5);
}

}  // namespace
}  // namespace roundhouse::bench
