#include "server/jobs/link_rate.h"

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

constexpr uint64_t kMiB = 1 << 20;

wire::SlotDone Done(uint64_t up, int64_t h2d_ns, uint64_t down,
                    int64_t d2h_ns) {
  wire::SlotDone done;
  done.bytes[0][0] = up / 2;
  done.bytes[0][wire::kPurposes - 1] = up - up / 2;
  done.bytes[1][1] = down;
  done.h2d_ns = h2d_ns;
  done.d2h_ns = d2h_ns;
  return done;
}

TEST(LinkRateTest, IsTheFastestSlotsOfTheSlowerDirection) {
  LinkRate rate;
  EXPECT_FALSE(rate.bytes_per_ns().has_value());
  rate.Observe(Done(64 * kMiB, 8 * kMiB, 0, 0));  // 8 up
  EXPECT_FALSE(rate.bytes_per_ns().has_value());
  rate.Observe(Done(0, 0, 32 * kMiB, 16 * kMiB));  // 2 down
  EXPECT_DOUBLE_EQ(*rate.bytes_per_ns(), 2);
  rate.Observe(Done(0, 0, 32 * kMiB, 4 * kMiB));   // 8 down
  rate.Observe(Done(64 * kMiB, 32 * kMiB, 0, 0));  // crowded
  EXPECT_DOUBLE_EQ(*rate.bytes_per_ns(), 8);
  rate.Observe(Done(32 * kMiB, 2 * kMiB, 0, 0));  // 16 up
  EXPECT_DOUBLE_EQ(*rate.bytes_per_ns(), 8);
}

// A worker may report anything.
TEST(LinkRateTest, SmallCopiesAndNoTimeSayNothing) {
  LinkRate rate;
  rate.Observe(
      Done(LinkRate::kLeastBytes - 1, 1, LinkRate::kLeastBytes - 1, 1));
  rate.Observe(Done(64 * kMiB, 0, 64 * kMiB, -5));
  EXPECT_FALSE(rate.bytes_per_ns().has_value());
}

}  // namespace
}  // namespace roundhouse
