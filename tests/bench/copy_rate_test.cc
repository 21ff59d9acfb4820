#include "tests/bench/copy_rate.h"

#include "gtest/gtest.h"

namespace roundhouse::bench {
namespace {

TEST(CopyRateTest, ARatioOfEveryRepetitionInBothDirections) {
  for (const auto direction : {wire::Direction::kH2D, wire::Direction::kD2H}) {
    CopyRateOptions options;
    options.direction = direction;
    options.copy_bytes = 300 << 10;
    options.requests = 3;
    options.repetitions = 4;
    const auto ratios = MeasureCopyRate(options);
    ASSERT_TRUE(ratios.ok()) << ratios.status();
    ASSERT_EQ(ratios->size(), 4u);
    for (const double ratio : *ratios) EXPECT_GT(ratio, 0);
  }
}

}  // namespace
}  // namespace roundhouse::bench
