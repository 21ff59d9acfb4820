#include "tests/bench/socket_loop.h"

#include <vector>

#include "gtest/gtest.h"

namespace roundhouse::bench {
namespace {

std::vector<RoundTrip> TripsOf(int width) {
  auto loop = SocketLoop::Create(width);
  EXPECT_TRUE(loop.ok()) << loop.status();
  (*loop)->Start(absl::Milliseconds(1));
  auto trips = (*loop)->Stop();
  EXPECT_TRUE(trips.ok()) << trips.status();
  return *std::move(trips);
}

TEST(SocketLoopTest, MakesRoundTripsUntilItIsStopped) {
  const std::vector<RoundTrip> trips = TripsOf(1);
  ASSERT_FALSE(trips.empty());
  int64_t last_ns = 0;
  for (const RoundTrip& trip : trips) {
    EXPECT_GT(trip.sent_ns, last_ns);
    EXPECT_GT(trip.received_ns, trip.sent_ns);
    last_ns = trip.received_ns;
  }
}

TEST(SocketLoopTest, EachThreadMakesOneAtLeast) {
  EXPECT_GE(TripsOf(5).size(), 5);
}

TEST(SocketLoopTest, EndsWithItsOwner) {
  auto loop = SocketLoop::Create(2);
  ASSERT_TRUE(loop.ok()) << loop.status();
  (*loop)->Start(absl::Milliseconds(1));
}

}  // namespace
}  // namespace roundhouse::bench
