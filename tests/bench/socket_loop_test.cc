#include "tests/bench/socket_loop.h"

#include "gtest/gtest.h"

namespace roundhouse::bench {
namespace {

TEST(SocketLoopTest, MakesRoundTripsUntilItIsStopped) {
  auto loop = SocketLoop::Start(absl::Milliseconds(1));
  ASSERT_TRUE(loop.ok()) << loop.status();
  const auto trips = (*loop)->Stop();
  ASSERT_TRUE(trips.ok()) << trips.status();
  ASSERT_FALSE(trips->empty());
  int64_t last_ns = 0;
  for (const RoundTrip& trip : *trips) {
    EXPECT_GT(trip.sent_ns, last_ns);
    EXPECT_GT(trip.received_ns, trip.sent_ns);
    last_ns = trip.received_ns;
  }
}

TEST(SocketLoopTest, EndsWithItsOwner) {
  auto loop = SocketLoop::Start(absl::Milliseconds(1));
  ASSERT_TRUE(loop.ok()) << loop.status();
}

}  // namespace
}  // namespace roundhouse::bench
