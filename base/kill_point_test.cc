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

TEST(KillPointTest, UnarmedDoesNothing) {
  ASSERT_TRUE(ArmKillPoint("").ok());
  KillPoint("host.chunk.ready");
}

TEST(KillPointTest, MalformedIsNamed) {
  for (const char* text : {"x", ":1", "x:0", "x:-1", "x:many", "x:"}) {
    EXPECT_EQ(ArmKillPoint(text).code(), absl::StatusCode::kInvalidArgument)
        << text;
  }
}

}  // namespace
}  // namespace roundhouse
