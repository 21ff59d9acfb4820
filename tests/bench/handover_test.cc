#include "tests/bench/handover.h"

#include "gtest/gtest.h"

namespace roundhouse::bench {
namespace {

TEST(HandoverTest, EveryHandOverIsSeenAfterItWasRaised) {
  const auto seconds = MeasureHandovers(50);
  ASSERT_TRUE(seconds.ok()) << seconds.status();
  ASSERT_EQ(seconds->size(), 50u);
  for (const double each : *seconds) EXPECT_GT(each, 0);
}

}  // namespace
}  // namespace roundhouse::bench
