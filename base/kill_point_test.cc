#include "base/kill_point.h"

#include <signal.h>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

TEST(KillPointTest, DiesAtTheNthHitOfItsNameOnly) {
  EXPECT_EXIT(
      {
        if (!ArmKillPoint("host.chunk.ready:3").ok()) _exit(1);
        KillPoint("host.chunk.ready");
        KillPoint("host.chunk.done");
        KillPoint("host.chunk.ready");
        KillPoint("host.chunk.done");
        if (fork() == 0) _exit(0);  // The process is alive up to here.
        KillPoint("host.chunk.ready");
        _exit(2);
      },
      testing::KilledBySignal(SIGKILL), "");
}

TEST(KillPointTest, AFaultIsToldOnceAtTheNthHitOfItsNameOnly) {
  ASSERT_TRUE(ArmKillPoint("slot.fault:2").ok());
  EXPECT_FALSE(FaultPoint("slot.fault"));
  EXPECT_FALSE(FaultPoint("slot.other"));
  KillPoint("host.chunk.ready");
  EXPECT_TRUE(FaultPoint("slot.fault"));
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(FaultPoint("slot.fault"));
}

TEST(KillPointTest, UnarmedDoesNothing) {
  ASSERT_TRUE(ArmKillPoint("").ok());
  KillPoint("host.chunk.ready");
  EXPECT_FALSE(FaultPoint("slot.fault"));
}

TEST(KillPointTest, MalformedIsNamed) {
  for (const char* text : {"x", ":1", "x:0", "x:-1", "x:many", "x:"}) {
    EXPECT_EQ(ArmKillPoint(text).code(), absl::StatusCode::kInvalidArgument)
        << text;
  }
}

}  // namespace
}  // namespace roundhouse
