#include "scheduler/search/shape_changes.h"

#include <algorithm>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

ShapeLimits SmallLimits() {
  ShapeLimits limits;
  limits.layers = 4;
  limits.devices = 3;
  limits.micro_batches = 6;
  limits.most_look_ahead = 2;
  limits.widths = {3, 2, 1};
  return limits;
}

PlanShape SmallShape() {
  PlanShape shape;
  shape.fused_layers = 4;
  shape.widths = {3, 3, 1};
  shape.first_layers = {1, 4};
  shape.last_layers = {2};
  shape.first_widths = {1};
  shape.last_widths = {3, 3};
  shape.groups = 3;
  return shape;
}

bool Has(const std::vector<PlanShape>& shapes, const PlanShape& shape) {
  return std::find(shapes.begin(), shapes.end(), shape) != shapes.end();
}

TEST(ShapeChangesTest, StayWithinTheLimits) {
  const ShapeLimits limits = SmallLimits();
  const PlanShape shape = SmallShape();
  for (const auto& changes :
       {ShapeChanges(shape, limits), EndChanges(shape, limits)}) {
    EXPECT_GT(changes.size(), 10u);
    EXPECT_FALSE(Has(changes, shape));
    for (const PlanShape& changed : changes) {
      EXPECT_LE(changed.fused_layers, 4);
      EXPECT_LE(changed.look_ahead, 2);
      EXPECT_GE(changed.forward_layers, 1);
      for (const auto& layers : {changed.first_layers, changed.last_layers}) {
        EXPECT_LE(layers.size(), 4u);
        for (const int n : layers) EXPECT_TRUE(1 <= n && n <= 4) << n;
      }
      for (const auto& widths : {changed.first_widths, changed.last_widths}) {
        EXPECT_LE(widths.size(), 4u);
        for (const int w : widths) EXPECT_TRUE(1 <= w && w <= 3) << w;
      }
    }
  }
}

TEST(ShapeChangesTest, AnEndGrowsShrinksAndChanges) {
  const PlanShape shape = SmallShape();
  const auto changes = EndChanges(shape, SmallLimits());
  PlanShape longer = shape;
  longer.last_layers = {2, 2};
  EXPECT_TRUE(Has(changes, longer));
  PlanShape none = shape;
  none.last_layers = {};
  EXPECT_TRUE(Has(changes, none));
  PlanShape other = shape;
  other.first_layers = {1, 3};
  EXPECT_TRUE(Has(changes, other));
}

TEST(ShapeChangesTest, ManySlotsBecomeWiderAtOnce) {
  ShapeLimits limits = SmallLimits();
  limits.layers = 12;
  PlanShape wider = SmallShape();
  wider.first_widths = {2, 2, 2, 2};
  EXPECT_TRUE(Has(EndChanges(SmallShape(), limits), wider));
}

TEST(ShapeChangesTest, WhatIsDrawnIsAnotherPlanWithinTheLimits) {
  ShapeLimits limits = SmallLimits();
  limits.layers = 6;
  PlanShape shape;
  shape.fused_layers = 1;
  shape.forward_layers = 2;
  shape.widths = {2, 3, 1};
  shape = SpelledOut(shape, limits.layers);
  std::mt19937 random(1);
  std::vector<PlanShape> drawn;
  for (int i = 0; i < 1000; ++i) {
    const auto changed = DrawnChange(shape, limits, random);
    if (!changed.has_value()) continue;
    EXPECT_NE(*changed, shape);
    EXPECT_EQ(*changed, SpelledOut(*changed, limits.layers));
    for (const auto& widths : {changed->first_widths, changed->last_widths}) {
      for (const int w : widths) EXPECT_TRUE(1 <= w && w <= 3) << w;
    }
    if (!Has(drawn, *changed)) drawn.push_back(*changed);
  }
  EXPECT_GT(drawn.size(), 30u);
  PlanShape shifted = shape;
  shifted.first_layers = {1, 3, 1};
  PlanShape split = shape;
  split.first_layers = {1, 1, 2, 1};
  split.first_widths = {2, 2, 2, 2};
  PlanShape merged = shape;
  merged.last_layers = {2, 1, 1, 1};
  merged.last_widths = {1, 1, 1, 1};
  PlanShape longer_tail = shape;
  longer_tail.fused_layers = 2;
  longer_tail = SpelledOut(longer_tail, limits.layers);
  for (const auto& expected : {shifted, split, merged, longer_tail}) {
    EXPECT_TRUE(Has(drawn, expected));
  }
}

TEST(ShapeChangesTest, EqualSlotsHaveNoEnds) {
  ShapeLimits limits = SmallLimits();
  limits.ends = false;
  EXPECT_TRUE(EndChanges(PlanShape(), limits).empty());
  for (const PlanShape& changed : ShapeChanges(PlanShape(), limits)) {
    EXPECT_TRUE(changed.first_widths.empty() && changed.last_widths.empty());
  }
}

TEST(ShapeChangesTest, GivenGroupsStay) {
  ShapeLimits limits = SmallLimits();
  PlanShape more = SmallShape();
  more.groups = 6;
  EXPECT_TRUE(Has(ShapeChanges(SmallShape(), limits), more));
  limits.groups = false;
  for (const PlanShape& changed : ShapeChanges(SmallShape(), limits)) {
    EXPECT_EQ(changed.groups, 3);
  }
}

}  // namespace
}  // namespace roundhouse
