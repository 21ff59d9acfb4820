#include "server/admission/validation_order.h"

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

TEST(ValidationOrderTest, WhoIsReadyFirstWaitsForThoseBefore) {
  ValidationOrder order(absl::Seconds(10));
  for (const int64_t job : {3, 4, 5}) order.Began(job, 0);
  order.Ready(5);
  order.Ready(4);
  EXPECT_EQ(order.TakeReady(kSecond), std::nullopt);
  EXPECT_EQ(order.ready_count(), 2u);
  order.Ready(3);
  EXPECT_EQ(order.TakeReady(kSecond), 3);
  EXPECT_EQ(order.TakeReady(kSecond), 4);
  EXPECT_EQ(order.TakeReady(kSecond), 5);
  EXPECT_EQ(order.TakeReady(kSecond), std::nullopt);
}

TEST(ValidationOrderTest, NobodyWaitsForThoseBehind) {
  ValidationOrder order(absl::Seconds(10));
  order.Began(3, 0);
  order.Began(4, 0);
  order.Ready(3);
  EXPECT_EQ(order.TakeReady(0), 3);
}

TEST(ValidationOrderTest, OneThatTakesLongHoldsUpNobody) {
  ValidationOrder order(absl::Seconds(10));
  order.Began(1, 0);
  order.Began(2, 3 * kSecond);
  order.Ready(2);
  EXPECT_EQ(order.TakeReady(4 * kSecond), std::nullopt);
  EXPECT_EQ(order.NextIn(4 * kSecond), absl::Seconds(6));
  EXPECT_EQ(order.TakeReady(10 * kSecond), 2);
  EXPECT_EQ(order.NextIn(10 * kSecond), std::nullopt);
  // It is ready in the end, behind the other.
  order.Ready(1);
  EXPECT_EQ(order.TakeReady(11 * kSecond), 1);
}

TEST(ValidationOrderTest, OneThatFailedHoldsUpNobody) {
  ValidationOrder order(absl::Seconds(10));
  order.Began(1, 0);
  order.Began(2, 0);
  order.Ready(2);
  order.Drop(1);
  EXPECT_EQ(order.NextIn(0), absl::ZeroDuration());
  EXPECT_EQ(order.TakeReady(0), 2);
}

TEST(ValidationOrderTest, WhoIsDroppedIsNotReady) {
  ValidationOrder order(absl::Seconds(10));
  order.Began(1, 0);
  order.Ready(1);
  order.Drop(1);
  EXPECT_EQ(order.TakeReady(0), std::nullopt);
  order.Ready(7);  // it never began
  EXPECT_EQ(order.TakeReady(0), std::nullopt);
}

}  // namespace
}  // namespace roundhouse
