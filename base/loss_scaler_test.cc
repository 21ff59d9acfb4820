#include "base/loss_scaler.h"

#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

using State = LossScaler::State;

// Steps in a row that end alike, and the scale and tracker after them.
struct Stretch {
  int64_t steps;
  bool finite;
  float scale;
  int64_t growth_tracker;
};

// What torch.amp.GradScaler with its defaults says after the same steps
// (get_scale() and state_dict()["_growth_tracker"] after update()).
TEST(LossScalerTest, GoesAsGradScaler) {
  LossScaler scaler;
  EXPECT_EQ(scaler.state(), (State{65536, 0, 0}));
  int64_t skipped = 0;
  for (const Stretch& run : std::vector<Stretch>{{3, false, 8192, 0},
                                                 {1999, true, 8192, 1999},
                                                 {1, true, 16384, 0},
                                                 {1, true, 16384, 1},
                                                 {1, false, 8192, 0},
                                                 {1999, true, 8192, 1999},
                                                 {1, false, 4096, 0},
                                                 {4000, true, 16384, 0},
                                                 {2001, true, 32768, 1},
                                                 {2, false, 8192, 0}}) {
    for (int64_t i = 0; i < run.steps; ++i) scaler.EndStep(run.finite);
    if (!run.finite) skipped += run.steps;
    EXPECT_EQ(scaler.state(), (State{run.scale, run.growth_tracker, skipped}));
  }
}

TEST(LossScalerTest, GoesOnFromAnyState) {
  LossScaler whole;
  for (int step = 0; step < 9000; ++step) {
    ASSERT_TRUE(LossScaler::IsValid(whole.state()));
    LossScaler again(whole.state());
    const bool finite = step % 2500 != 7;
    whole.EndStep(finite);
    again.EndStep(finite);
    ASSERT_EQ(whole.state(), again.state()) << step;
  }
}

TEST(LossScalerTest, IsExhaustedBelowTheLowestScale) {
  LossScaler scaler;
  for (int i = 0; i < 16; ++i) {
    scaler.EndStep(false);
    EXPECT_FALSE(scaler.exhausted()) << scaler.scale();
  }
  EXPECT_EQ(scaler.scale(), 1.0f);
  scaler.EndStep(false);
  EXPECT_TRUE(scaler.exhausted());
}

TEST(LossScalerTest, TheLargestScaleStays) {
  LossScaler scaler(State{0x1p127f, 1999, 0});
  scaler.EndStep(true);
  EXPECT_EQ(scaler.state(), (State{0x1p127f, 0, 0}));
}

TEST(LossScalerTest, WhatNoScalerCanHaveIsRefused) {
  EXPECT_TRUE(LossScaler::IsValid({1, 1999, 7}));
  for (const State& state :
       std::vector<State>{{0, 0, 0},
                          {0.5, 0, 0},
                          {-2, 0, 0},
                          {3, 0, 0},
                          {std::numeric_limits<float>::infinity(), 0, 0},
                          {std::numeric_limits<float>::quiet_NaN(), 0, 0},
                          {2, -1, 0},
                          {2, 2000, 0},
                          {2, 0, -1}}) {
    EXPECT_FALSE(LossScaler::IsValid(state)) << state.scale;
  }
}

}  // namespace
}  // namespace roundhouse
