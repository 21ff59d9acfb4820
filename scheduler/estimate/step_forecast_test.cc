#include "scheduler/estimate/step_forecast.h"

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "scheduler/estimate/test_shapes.h"
#include "scheduler/search/step_search.h"
#include "scheduler/simulate/checker.h"

namespace roundhouse {
namespace {

constexpr int64_t kGib = int64_t{1} << 30;

ForecastQuestion Question(const TrainingSetup& setup,
                          const std::string& devices, int64_t batch) {
  ForecastQuestion question;
  question.setup = setup;
  question.devices = *ParsePresets(devices);
  question.batch_sequences = batch;
  return question;
}

StepForecast Must(const ForecastQuestion& question) {
  const auto forecast = ForecastStep(question);
  EXPECT_TRUE(forecast.ok()) << forecast.status();
  return forecast.ok() ? *forecast : StepForecast();
}

// Everything adds up, whatever the numbers are.
void ExpectConsistent(const StepForecast& forecast) {
  ASSERT_GT(forecast.step_ns, 0);
  BubbleCauses sum;
  for (const DeviceForecast& device : forecast.devices) {
    EXPECT_NEAR(static_cast<double>(device.time.compute_ns +
                                    device.time.bubble.total_ns()),
                static_cast<double>(forecast.step_ns), 10);
    EXPECT_LE(device.used_bytes, device.preset.memory_bytes);
    EXPECT_GT(device.used_bytes, 0);
    sum.Add(device.time.bubble);
  }
  EXPECT_EQ(sum, forecast.bubble);
  EXPECT_GT(forecast.bubble_percent(), 0);
  EXPECT_LT(forecast.bubble_percent(), 100);
}

TEST(StepForecastTest, EightCardsTrainingA32B) {
  const ForecastQuestion question =
      Question(TestSetup("qwen3-32b"), "8xrtx4090", 64);
  const StepForecast forecast = Must(question);
  EXPECT_TRUE(forecast.feasible());
  EXPECT_EQ(forecast.micro_batches, 16);
  EXPECT_EQ(forecast.tokens_per_step, 64 * 2048);
  EXPECT_GE(forecast.host.state, 18 * int64_t{32'762'123'264});
  ExpectConsistent(forecast);
  // No faster than the devices' arithmetic alone.
  const ModelCosts costs =
      CostsOf(question.setup, question.devices[0], Accumulation::kFp32);
  const int64_t least_ns =
      16 *
      (costs.layers * (costs.forward_ns + costs.backward_ns) +
       costs.head_forward_ns + costs.head_backward_ns) /
      8;
  EXPECT_GT(forecast.step_ns, least_ns);
  EXPECT_FALSE(forecast.plan.empty());
}

// The simulated round passes the same judge as every schedule.
TEST(StepForecastTest, TheTimelineIsARunnableSchedule) {
  ForecastQuestion question = Question(TestSetup("gpt-oss-20b"), "2xa800", 256);
  const StepForecast forecast = Must(question);
  ExpectConsistent(forecast);
  EXPECT_EQ(forecast.round_micro_batches, 32);
  CheckOptions options;
  options.micro_batches = 32;
  options.machine.devices.resize(2);
  options.machine.link_rate = question.devices[0].link_rate;
  // Intervals have mean rates, whose sum says nothing of any moment.
  options.machine.host_rate = 1e6;
  for (SimulatedDevice& device : options.machine.devices) {
    device.memory_bytes = 80 * kGib;
  }
  const ModelCosts costs =
      CostsOf(question.setup, question.devices[0], question.accumulation);
  EXPECT_EQ(
      CheckStepSchedule(forecast.round, costs, options, Contributions::kFp32),
      absl::OkStatus());
}

TEST(StepForecastTest, RoundedContributionsTakeHalfTheHostBytesAndNoMoreTime) {
  ForecastQuestion question = Question(TestSetup("qwen3-32b"), "8xrtx4090", 64);
  const StepForecast bitwise = Must(question);
  question.setup.contributions = Contributions::kModelDtype;
  const StepForecast fast = Must(question);
  ExpectConsistent(fast);
  EXPECT_LT(fast.host.contributions, bitwise.host.contributions);
  EXPECT_LE(fast.step_ns, bitwise.step_ns);
}

TEST(StepForecastTest, WithoutClippingUpdatesRunUnderTheStep) {
  ForecastQuestion question = Question(TestSetup("qwen3-32b"), "8xrtx4090", 16);
  question.setup.micro_batch_sequences = 1;
  const StepForecast clipped = Must(question);
  question.setup.clips = false;
  const StepForecast free = Must(question);
  ExpectConsistent(free);
  EXPECT_LT(free.step_ns, clipped.step_ns);
  EXPECT_LT(free.host.state, clipped.host.state);
}

// With several rounds the sums are kept.
TEST(StepForecastTest, RoundsAreUpdatedInTwoPasses) {
  ForecastQuestion question =
      Question(TestSetup("qwen3-1.7b"), "8xrtx4090", 4 * 64);
  const StepForecast clipped = Must(question);
  question.setup.clips = false;
  const StepForecast free = Must(question);
  ExpectConsistent(free);
  EXPECT_EQ(free.plan, clipped.plan);
  EXPECT_LT(free.step_ns, clipped.step_ns);
  EXPECT_GE(free.step_ns, free.round.MakespanNs());
  EXPECT_EQ(free.host.state, clipped.host.state);
}

// Without the embedding, of which the checker knows nothing.
Schedule BlocksAndHead(Schedule schedule) {
  std::erase_if(schedule.intervals, [](const Interval& interval) {
    return interval.layer_begin < 0;
  });
  return schedule;
}

// Steps of one round: with their updates, and as one of many.
void ExpectInARow(const ForecastQuestion& question,
                  const StepForecast& forecast) {
  ExpectConsistent(forecast);
  const ModelShape& shape = question.setup.shape;
  ModelCosts costs =
      CostsOf(question.setup, question.devices[0], question.accumulation);
  costs.embedding_gradient_bytes = 2 * shape.embedding_parameters();
  costs.tied_head = shape.tie_word_embeddings;
  StepsCheckOptions check;
  check.machine.devices.assign(
      8, {.memory_bytes = 24 * kGib - DeviceReserveBytes(question.setup)});
  check.machine.link_rate = question.devices[0].link_rate;
  check.micro_batches = 16;
  check.updates = question.setup.clips ? Updates::kClipped : Updates::kOnePass;
  SearchOptions search;
  search.updates = check.updates;
  search.fused = FusedSlots::kByLayer;
  const auto found =
      SearchStepPlan(costs, check.machine, check.micro_batches, search);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(ToString(found->plan), forecast.plan);
  EXPECT_GE(forecast.step_ns, found->step_ns);
  EXPECT_LE(static_cast<double>(forecast.step_ns),
            1.01 * static_cast<double>(found->step_ns));
  check.machine.host_rate = 1e6;  // as above
  if (costs.tied_head) return;
  EXPECT_EQ(CheckStepsSchedule(BlocksAndHead(forecast.round), costs, check),
            absl::OkStatus());
}

TEST(StepForecastTest, OneRoundIsForecastAsStepsInARow) {
  for (const char* name : {"qwen3-1.7b", "llama3.1-8b", "gpt-oss-20b"}) {
    SCOPED_TRACE(name);
    ForecastQuestion question = Question(TestSetup(name), "8xrtx4090", 64);
    question.setup.contributions = Contributions::kModelDtype;
    const StepForecast clipped = Must(question);
    ExpectInARow(question, clipped);
    question.setup.clips = false;
    const StepForecast free = Must(question);
    ExpectInARow(question, free);
    // Where updates are short two searches may differ by more than they take.
    EXPECT_LT(static_cast<double>(free.step_ns),
              1.001 * static_cast<double>(clipped.step_ns));
  }
}

// Short stages keep more activations between them: they may be had where there
// is room.
TEST(StepForecastTest, ThePlanKeepsToHostMemory) {
  ForecastQuestion question =
      Question(TestSetup("llama3.1-8b"), "1xrtx4090", 16);
  question.setup.contributions = Contributions::kModelDtype;
  question.setup.clips = false;
  const StepForecast free = Must(question);
  EXPECT_EQ(free.host.boundaries, free.wanted_boundary_bytes);
  question.host_memory_bytes = free.host.total() - 1;
  const StepForecast within = Must(question);
  EXPECT_TRUE(within.feasible());
  ExpectConsistent(within);
  EXPECT_LE(within.host.total(), question.host_memory_bytes);
  EXPECT_GE(within.step_ns, free.step_ns);
  // Where none has room, one of those that need least.
  question.host_memory_bytes = 96 * kGib;
  const StepForecast none = Must(question);
  EXPECT_FALSE(none.feasible());
  EXPECT_LE(none.host.total(), within.host.total());
  EXPECT_EQ(none.host_missing_bytes, none.host.total() - 96 * kGib);
  question.host_memory_bytes = none.host.total() - none.host.total() / 50;
  EXPECT_FALSE(Must(question).feasible());
}

// Long rows of a large model: computing some again makes room for the others.
TEST(StepForecastTest, WithLittleHostMemoryFewerInputsAreKept) {
  TrainingSetup setup = TestSetup("qwen3-32b");
  setup.contributions = Contributions::kModelDtype;
  setup.sequence_tokens = 36'000;
  setup.micro_batch_sequences = 1;
  ForecastQuestion question = Question(setup, "8xrtx4090", 8);
  question.host_memory_bytes = 800 * kGib;
  const StepForecast all = Must(question);
  EXPECT_TRUE(all.feasible());
  EXPECT_EQ(all.inputs.saved, all.inputs.all);
  question.host_memory_bytes = 768 * kGib;
  const StepForecast fewer = Must(question);
  EXPECT_TRUE(fewer.feasible());
  ExpectConsistent(fewer);
  // No more of them than there must be.
  EXPECT_LT(fewer.inputs.saved, fewer.inputs.all);
  EXPECT_GT(fewer.inputs.saved, fewer.inputs.all * 3 / 4);
  EXPECT_LT(static_cast<double>(fewer.step_ns),
            1.03 * static_cast<double>(all.step_ns));
  question.setup.saved_every = 2;
  const StepForecast half = Must(question);
  EXPECT_TRUE(half.feasible());
  EXPECT_LT(half.inputs.saved, fewer.inputs.saved);
  EXPECT_LT(static_cast<double>(half.step_ns),
            1.15 * static_cast<double>(all.step_ns));
  question.setup.saved_every = 1;
  EXPECT_FALSE(Must(question).feasible());
}

TEST(StepForecastTest, HostBytesThatAreMissing) {
  ForecastQuestion question = Question(TestSetup("qwen3-32b"), "1xrtx4090", 8);
  question.host_memory_bytes = 64 * kGib;
  const StepForecast forecast = Must(question);
  EXPECT_FALSE(forecast.feasible());
  EXPECT_EQ(forecast.host_missing_bytes, forecast.host.total() - 64 * kGib);
  EXPECT_EQ(forecast.device_missing_bytes, 0);
  question.host_memory_bytes = forecast.host.total();
  EXPECT_TRUE(Must(question).feasible());
}

TEST(StepForecastTest, DeviceBytesThatAreMissing) {
  TrainingSetup setup = TestLora("qwen3-235b", 8);
  setup.sequence_tokens = 65536;
  setup.micro_batch_sequences = 1;
  ForecastQuestion question = Question(setup, "8xrtx4090", 8);
  const StepForecast forecast = Must(question);
  EXPECT_FALSE(forecast.feasible());
  EXPECT_EQ(forecast.device_missing_bytes,
            forecast.device_needed_bytes - 24 * kGib);
  EXPECT_EQ(forecast.device_needed_bytes,
            DeviceNeedBytes(setup, question.devices[0]));
  EXPECT_TRUE(forecast.devices.empty());
  EXPECT_EQ(forecast.step_ns, 0);
  EXPECT_EQ(forecast.tokens_per_second(), 0);
  EXPECT_LT(forecast.longest.tokens, 65536);
  EXPECT_EQ(forecast.longest.limit, SequenceLimit::kDeviceMemory);
}

TEST(StepForecastTest, TheMicroBatchIsTheJobFilesAutoWhereItFits) {
  TrainingSetup setup = TestSetup("qwen3-1.7b");
  setup.micro_batch_sequences = 0;
  EXPECT_EQ(Must(Question(setup, "2xrtx4090", 8)).micro_batch_sequences, 2);
  EXPECT_EQ(Must(Question(setup, "2xrtx4090", 3)).micro_batch_sequences, 1);
  setup.sequence_tokens = 40'000;
  const StepForecast forecast = Must(Question(setup, "2xrtx4090", 32));
  EXPECT_TRUE(forecast.feasible());
  EXPECT_LT(forecast.micro_batch_sequences, 8);
}

TEST(StepForecastTest, ALongStepIsRounds) {
  const TrainingSetup setup = TestSetup("qwen3-1.7b");
  const StepForecast one = Must(Question(setup, "1xrtx4090", 4 * 32));
  const StepForecast three = Must(Question(setup, "1xrtx4090", 4 * 96));
  EXPECT_EQ(three.round_micro_batches, 32);
  EXPECT_EQ(three.micro_batches, 96);
  EXPECT_EQ(three.host.total(), one.host.total());
  ExpectConsistent(three);
  EXPECT_GT(three.step_ns, 29 * one.step_ns / 10);
  EXPECT_LE(three.step_ns, 3 * one.step_ns);
}

// A slower device among fast ones gets less; costs are the first one's.
TEST(StepForecastTest, MixedDevices) {
  const TrainingSetup setup = TestSetup("llama3.1-8b");
  const StepForecast mixed = Must(Question(setup, "2xrtx4090,2xrtx3090", 64));
  ExpectConsistent(mixed);
  const StepForecast fast = Must(Question(setup, "4xrtx4090", 64));
  const StepForecast two = Must(Question(setup, "2xrtx4090", 64));
  EXPECT_GT(mixed.step_ns, fast.step_ns);
  EXPECT_LT(mixed.step_ns, two.step_ns);
}

// Published numbers were taken with fp16 accumulation: faster, never slower.
TEST(StepForecastTest, AccumulationChangesTheStep) {
  ForecastQuestion question =
      Question(TestSetup("llama3.1-8b"), "8xrtx4090", 64);
  const StepForecast fp32 = Must(question);
  question.accumulation = Accumulation::kFp16;
  const StepForecast fp16 = Must(question);
  EXPECT_LT(fp16.step_ns, fp32.step_ns);
  EXPECT_GT(fp16.tokens_per_second(), 1.5 * fp32.tokens_per_second());
}

TEST(StepForecastTest, TheSameQuestionHasTheSameAnswer) {
  const ForecastQuestion question =
      Question(TestSetup("qwen3-1.7b"), "3xrtx4090", 32);
  EXPECT_EQ(Must(question).plan, Must(question).plan);
  EXPECT_EQ(Must(question).step_ns, Must(question).step_ns);
}

TEST(StepForecastTest, WhatCannotBePlannedIsNamed) {
  const ForecastQuestion good =
      Question(TestSetup("qwen3-1.7b"), "1xrtx4090", 8);
  const auto expect = [](ForecastQuestion question, const char* part) {
    const auto forecast = ForecastStep(question);
    ASSERT_FALSE(forecast.ok()) << part;
    EXPECT_EQ(forecast.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(absl::StrContains(forecast.status().message(), part))
        << forecast.status();
  };
  ForecastQuestion bad = good;
  bad.devices.clear();
  expect(bad, "0 devices");
  bad = good;
  bad.batch_sequences = 3;
  expect(bad, "micro-batches of 4 sequences of a batch of 3");
  bad = good;
  bad.batch_sequences = 4 * (kMaxPlannedMicroBatches + 1);
  expect(bad, "at most 4096");
  bad = good;
  bad.host_rate = 0;
  expect(bad, "host memory at 0 GB/s");
  bad = good;
  bad.setup.sequence_tokens = 0;
  expect(bad, "a micro-batch has");
}

}  // namespace
}  // namespace roundhouse
