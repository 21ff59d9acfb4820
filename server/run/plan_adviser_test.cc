#include "server/run/plan_adviser.h"

#include "absl/strings/match.h"
#include "server/testing/job_parts_test_fixture.h"

namespace roundhouse {
namespace {

constexpr int kLayers = 4;  // with the head

class PlanAdviserTest : public JobPartsTest {
 protected:
  void Start(const std::string& fields) {
    Prepare(fields);
    Allocate();
    for (int device = 0; device < kDevices; ++device) {
      dispatcher_.DeviceUp(static_cast<DeviceId>(device));
    }
    adviser_ = std::make_unique<PlanAdviser>(
        PlanAdviser::Surroundings{*pool_, dispatcher_, *background_, *memory_},
        *options_,
        PlanAdviser::Calls{
            .wanted = [this] { return wanted_; },
            .note =
                [this](const std::string& text) { notes_.push_back(text); }});
  }
  void TearDown() override { adviser_.reset(); }

  // A training step whose layers all take so long, reviewed after it.
  void Step(int64_t forward_ns) {
    wire::SlotDone done;
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      wire::LayerTime time;
      time.layer = layer;
      time.forward_ns = forward_ns;
      time.backward_ns = 2 * forward_ns;
      done.layers.push_back(time);
    }
    adviser_->ObserveSlot(SlotKind::kFused, 1, done);
    adviser_->EndStep();
    ++marks_.begun;
    ++marks_.reduced;
    adviser_->Review(marks_);
  }
  // Until background work and what follows it is over.
  void Wait() {
    background_->Run([] { return absl::OkStatus(); },
                     [this](absl::Status) { loop_->Quit(); });
    loop_->Run();
    ASSERT_FALSE(background_->busy());
  }

  Dispatcher dispatcher_{DispatcherOptions{}};
  std::unique_ptr<PlanAdviser> adviser_;
  StepMarks marks_;
  bool wanted_ = true;
  std::vector<std::string> notes_;
};

TEST_F(PlanAdviserTest, LayersCostWhatTheyWereMeasuredToTake) {
  Start("max_steps: 1");
  EXPECT_TRUE(adviser_->LayerCosts().empty());
  for (int i = 0; i < 3; ++i) Step(1000000);
  const auto costs = adviser_->LayerCosts();
  ASSERT_EQ(costs.size(), static_cast<size_t>(kLayers));
  EXPECT_NEAR(costs[0].backward_ns, 3e6, 1);
}

TEST_F(PlanAdviserTest, AJobsOwnPlanIsNotReviewed) {
  Start(
      "max_steps: 1\n"
      "plan: {forward: [[0, 1]], backward: [[2, 3], [0, 1]]}");
  for (int i = 0; i < 40; ++i) Step(1000000);
  EXPECT_FALSE(background_->busy());
}

TEST_F(PlanAdviserTest, AnImpossibleTimeIsNoObservation) {
  Start("max_steps: 1");
  for (int i = 0; i < 40; ++i) Step(-1);
  EXPECT_TRUE(adviser_->LayerCosts().empty());
  EXPECT_FALSE(background_->busy());
}

TEST_F(PlanAdviserTest, ABetterPlanIsTakenWhenNoRoundUsesTheBuffers) {
  Start("max_steps: 1");
  const std::string first = ToString(memory_->plan());
  for (int i = 0; i < 8 && !background_->busy(); ++i) Step(20000000);
  ASSERT_TRUE(background_->busy()) << "no search began";
  Wait();
  ASSERT_TRUE(adviser_->found()) << "the plan was the best one";
  ++marks_.begun;  // another step has begun
  adviser_->Review(marks_);
  EXPECT_TRUE(adviser_->found());
  EXPECT_EQ(ToString(memory_->plan()), first);
  ++marks_.reduced;
  adviser_->Review(marks_);
  EXPECT_FALSE(adviser_->found());
  EXPECT_NE(ToString(memory_->plan()), first);
  ASSERT_EQ(notes_.size(), 1u);
  EXPECT_TRUE(absl::StrContains(
      notes_[0], "new plan from measured times: " + ToString(memory_->plan())))
      << notes_[0];
}

TEST_F(PlanAdviserTest, AJobThatMakesNoMoreStepsNeedsNoPlan) {
  Start("max_steps: 1");
  for (int i = 0; i < 8 && !background_->busy(); ++i) Step(20000000);
  ASSERT_TRUE(background_->busy());
  wanted_ = false;
  const uint64_t used = arena_->used_bytes();
  Wait();
  EXPECT_FALSE(adviser_->found());
  EXPECT_EQ(arena_->used_bytes(), used);
}

TEST_F(PlanAdviserTest, WhatWasFoundIsGivenBack) {
  Start("max_steps: 1");
  const uint64_t used = arena_->used_bytes();
  for (int i = 0; i < 8 && !background_->busy(); ++i) Step(20000000);
  ASSERT_TRUE(background_->busy());
  Wait();
  ASSERT_TRUE(adviser_->found());
  EXPECT_GT(arena_->used_bytes(), used);
  adviser_->Stop();
  EXPECT_FALSE(adviser_->found());
  EXPECT_EQ(arena_->used_bytes(), used);
}

}  // namespace
}  // namespace roundhouse
