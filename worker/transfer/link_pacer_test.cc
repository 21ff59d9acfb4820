#include "worker/transfer/link_pacer.h"

#include "gtest/gtest.h"

namespace roundhouse::worker {
namespace {

TEST(LinkPacerTest, UnthrottledIsFreeAtOnce) {
  LinkPacer pacer(0);
  EXPECT_EQ(pacer.Carry(17, 1 << 30), 17);
  EXPECT_EQ(pacer.Carry(18, 1 << 30), 18);
}

TEST(LinkPacerTest, CopiesFollowOneAnother) {
  LinkPacer pacer(8);  // one byte a nanosecond
  EXPECT_EQ(pacer.Carry(1000, 500), 1500);
  EXPECT_EQ(pacer.Carry(1100, 500), 2000);
  EXPECT_EQ(pacer.Carry(2000, 1), 2001);
}

TEST(LinkPacerTest, IdleTimeIsNotSavedUp) {
  LinkPacer pacer(8);
  EXPECT_EQ(pacer.Carry(0, 100), 100);
  EXPECT_EQ(pacer.Carry(1'000'000, 100), 1'000'100);
}

TEST(LinkPacerTest, FractionsOfANanosecondAddUp) {
  LinkPacer pacer(24);  // three bytes a nanosecond
  int64_t end = 0;
  for (int i = 0; i < 3000; ++i) end = pacer.Carry(0, 1);
  EXPECT_NEAR(static_cast<double>(end), 1000, 1);
}

}  // namespace
}  // namespace roundhouse::worker
