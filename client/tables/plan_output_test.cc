#include "client/tables/plan_output.h"

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace roundhouse::client {
namespace {

constexpr int64_t kGib = int64_t{1} << 30;

v1::PlanTrainingResponse Example() {
  v1::PlanTrainingResponse plan;
  plan.set_feasible(true);
  plan.set_family("qwen3");
  plan.set_parameters(32'800'000'000);
  plan.set_trained_parameters(32'800'000'000);
  plan.set_trainable(true);
  plan.set_max_position_tokens(40'960);
  plan.set_micro_batch_size(4);
  plan.set_micro_batches(16);
  plan.set_micro_batches_per_round(16);
  plan.mutable_host()->set_state_bytes(600 * kGib);
  plan.mutable_host()->set_boundary_bytes(20 * kGib);
  plan.mutable_host()->set_total_bytes(620 * kGib);
  plan.set_longest_sequence(33'000);
  plan.set_longest_sequence_limit(v1::SEQUENCE_LIMIT_DEVICE_MEMORY);
  v1::DeviceSource* source = plan.add_sources();
  source->set_kind("rtx4090");
  source->set_source("a data sheet");
  source->set_tflops(165.2);
  source->set_link_rate(21);
  plan.set_plan("forward [0,1] x8");
  plan.set_step_seconds(10);
  plan.set_tokens_per_step(131'072);
  plan.set_tokens_per_second(13'107.2);
  plan.set_bubble_ratio(0.05);
  plan.mutable_bubble()->set_fill_and_drain(0.25);
  plan.mutable_bubble()->set_end_of_step(0.75);
  for (int i = 0; i < 2; ++i) {
    v1::PlannedDevice* device = plan.add_devices();
    device->set_index(i);
    device->set_kind("rtx4090");
    device->set_memory_bytes(24 * kGib);
    device->set_used_bytes(12 * kGib);
    device->set_compute_seconds(9.5);
    device->mutable_bubble()->set_end_of_step(0.375);
  }
  return plan;
}

void ExpectHas(const std::string& text, const std::string& part) {
  EXPECT_TRUE(absl::StrContains(text, part)) << part << "\nin\n" << text;
}

TEST(PlanOutputTest, WhatAPlanComesTo) {
  const std::string text = PlanText(Example(), 800 * kGib);
  ExpectHas(text, "qwen3, 32.80B parameters, all trained\n");
  ExpectHas(text, "rtx4090: 165.2 TFLOP/s, 21 GB/s a link (a data sheet)\n");
  ExpectHas(text, "fits:              yes\n");
  ExpectHas(text, "16 of 4 sequences, 16 a round\n");
  ExpectHas(text, "10.000 s, 131072 tokens\n");
  ExpectHas(text, "bubble:            5.00%\n");
  // Shares of two devices' time.
  ExpectHas(text, "fill and drain:  1.25%\n");
  ExpectHas(text, "end of step:     3.75%\n");
  ExpectHas(text,
            "620.0 GiB of 800.0 GiB: training state 600.0 GiB, between "
            "stages 20.0 GiB\n");
  ExpectHas(text, "33000 tokens, then device memory ends\n");
  ExpectHas(text, "1       rtx4090  12.0 GiB  24.0 GiB  95.00%");
}

TEST(PlanOutputTest, WhatItDoesWithout) {
  v1::PlanTrainingResponse plan = Example();
  plan.set_backward_inputs(64);
  plan.set_saved_inputs(64);
  plan.mutable_host()->set_wanted_boundary_bytes(20 * kGib);
  const std::string with_all = PlanText(plan, 800 * kGib);
  EXPECT_FALSE(absl::StrContains(with_all, "saved inputs"));
  EXPECT_FALSE(absl::StrContains(with_all, "sent ahead"));
  plan.set_saved_inputs(60);
  plan.mutable_host()->set_wanted_boundary_bytes(23 * kGib);
  const std::string text = PlanText(plan, 800 * kGib);
  ExpectHas(text, "60 of 64; the others are computed again\n");
  ExpectHas(text, "fewer slots; 23.0 GiB between stages would delay none\n");
}

TEST(PlanOutputTest, WhatIsMissing) {
  v1::PlanTrainingResponse plan = Example();
  plan.clear_devices();
  plan.clear_plan();
  plan.set_feasible(false);
  plan.set_trainable(false);
  plan.set_trained_parameters(5'000'000);
  plan.set_device_missing_bytes(kGib);
  plan.set_device_needed_bytes(25 * kGib);
  plan.set_host_missing_bytes(3 * kGib);
  plan.set_longest_sequence(50'000);
  plan.set_longest_sequence_limit(v1::SEQUENCE_LIMIT_HOST_MEMORY);
  const std::string text = PlanText(plan, 0);
  ExpectHas(text, "5.0M trained (planned only: this server can't train it)");
  ExpectHas(text,
            "no: 1.0 GiB of device memory (1073741824 bytes) are missing: the "
            "smallest plan needs 25.0 GiB; 3.0 GiB of host memory (3221225472 "
            "bytes) are missing\n");
  ExpectHas(text, "then host memory ends (the model has positions for 40960)");
  ExpectHas(text, "620.0 GiB: training state");
  EXPECT_FALSE(absl::StrContains(text, "DEVICE"));
  EXPECT_FALSE(absl::StrContains(text, "tokens/s"));
}

TEST(PlanOutputTest, EqualStagesAreOneLine) {
  v1::PlanTrainingResponse plan = Example();
  plan.set_plan(
      "forward [0,0] x4 [1,1] x4 [2,2] x8 [3,4] x8 fused [5,6] x8 backward "
      "[4,4] x8 [3,3] x8 [0,2] x8");
  ExpectHas(PlanText(plan, 0),
            "forward [0,1] in 2 x4 [2,2] x8 [3,4] x8 fused [5,6] x8 backward "
            "[3,4] in 2 x8 [0,2] x8\n");
  plan.set_plan(
      "forward [0,2] x8 [3,3] x8 fused [4,4] x8 backward [3,3] x8 [2,2] x8 "
      "[1,1] x8 [0,0] x8 again [2,2] x8 [0,0] x8");
  ExpectHas(PlanText(plan, 0), "backward [0,3] in 4 x8 again [0,2] in 2 x8\n");
  plan.set_plan("no plan [1,");
  ExpectHas(PlanText(plan, 0), "no plan [1,\n");
}

TEST(PlanOutputTest, NamesDoNotMoveTheCursor) {
  v1::PlanTrainingResponse plan = Example();
  plan.set_family("x\x1b[2J");
  EXPECT_FALSE(absl::StrContains(PlanText(plan, 0), "\x1b"));
}

}  // namespace
}  // namespace roundhouse::client
