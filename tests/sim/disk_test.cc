// Jobs on a full disk.
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/store/disk_reserve.h"
#include "tests/sim/sharing_test_fixture.h"
#include "tests/sim/sim_disk.h"

namespace roundhouse::sim {
namespace {

class DiskTest : public SharingTest {
 protected:
  // One that finds no room for its data waits.
  void SubmitWithoutRoom() {
    StartServer(1, 1);
    disk_.Set(DiskState::kQuota, [](FileSite site) {
      return absl::string_view(site.name) == kPreparedArray.name;
    });
    Submit("ann");
    Pass(absl::Seconds(2));
    ASSERT_EQ(Job(1).state, JobState::kPaused);
    ASSERT_EQ(Job(1).reason, JobReason::kStorageFull);
  }

  SimDisk disk_;
};

TEST_F(DiskTest, AFullDiskHasNoFreeBytes) {
  EXPECT_GT(FreeDiskBytes(root_).value(), 0u);
  disk_.Set(DiskState::kQuota);
  EXPECT_GT(FreeDiskBytes(root_).value(), 0u);
  disk_.Set(DiskState::kFull);
  EXPECT_EQ(FreeDiskBytes(root_).value(), 0u);
  disk_.Set(DiskState::kRoomy);
  EXPECT_GT(FreeDiskBytes(root_).value(), 0u);
}

TEST_F(DiskTest, AResumeThatIsRefusedLeavesAJobWaitingForRoom) {
  SubmitWithoutRoom();
  store_fault_ = absl::InternalError("Input/output error");
  EXPECT_FALSE(Ask(&Engine::Resume, 1).ok());
  store_fault_ = absl::OkStatus();
  disk_.Set(DiskState::kRoomy);
  Pass(absl::Minutes(2));
  EXPECT_EQ(Job(1).state, JobState::kRunning) << Events(1);
}

// As it loads, after it waited for its data: not at once again and again.
TEST_F(DiskTest, OneWhoseLoadFindsNoRoomIsTriedLaterEachTime) {
  for (const bool dies : {false, true}) {
    SCOPED_TRACE(dies);
    SubmitWithoutRoom();
    disk_.Set(DiskState::kQuota, [](FileSite site) {
      return absl::string_view(site.name) == kJobTokenizer.name;
    });
    Pass(absl::Minutes(10));
    EXPECT_EQ(Job(1).state, JobState::kPaused) << Events(1);
    EXPECT_EQ(Job(1).reason, JobReason::kStorageFull);
    EXPECT_GT(Job(1).attempts, 2);
    EXPECT_LT(Job(1).attempts, 20);
    if (dies) {
      server_->Crash();
      server_->Start();
    }
    disk_.Set(DiskState::kRoomy);
    Pass(absl::Minutes(12));
    EXPECT_EQ(Job(1).state, JobState::kRunning) << Events(1);
    ForgetServer();
  }
}

TEST_F(DiskTest, OneThatIsToldToPauseWaitsForRoomNoMore) {
  for (const bool dies : {false, true}) {
    SCOPED_TRACE(dies);
    SubmitWithoutRoom();
    const auto paused = Ask(&Engine::Pause, 1);
    ASSERT_TRUE(paused.ok()) << paused.status();
    EXPECT_EQ(paused->reason, JobReason::kNone);
    EXPECT_EQ(paused->message, "");
    if (dies) {
      server_->Crash();
      server_->Start();
    }
    disk_.Set(DiskState::kRoomy);
    Pass(absl::Minutes(2));
    EXPECT_EQ(Job(1).state, JobState::kPaused) << Events(1);
    ASSERT_TRUE(Ask(&Engine::Resume, 1).ok());
    Pass(absl::Seconds(20));
    EXPECT_EQ(Job(1).state, JobState::kRunning) << Events(1);
    ForgetServer();
  }
}

// In the middle of its steps, where its checkpoint does not fit.
TEST_F(DiskTest, OneThatIsToldToPauseWithItsMemoryGoesOnWhenItIsResumed) {
  for (const bool gives_back : {false, true}) {
    SCOPED_TRACE(gives_back);
    StartServer(1, 1);
    Submit("ann", "save_steps: 2\n");
    disk_.Set(DiskState::kFull);
    for (int i = 0; i < 100 && Job(1).state != JobState::kPaused; ++i) {
      Pass(absl::Seconds(1));
    }
    ASSERT_TRUE(Job(1).progress.memory_kept) << Events(1);
    const int64_t step = Job(1).progress.step;
    const auto paused =
        Ask(gives_back ? &Engine::PauseAndGiveBack : &Engine::Pause, 1);
    ASSERT_TRUE(paused.ok()) << paused.status();
    EXPECT_EQ(paused->reason, JobReason::kNone);
    Pass(absl::Seconds(20));
    disk_.Set(DiskState::kRoomy);
    Pass(absl::Minutes(2));
    EXPECT_EQ(Job(1).state, JobState::kPaused) << Events(1);
    EXPECT_EQ(Job(1).progress.memory_kept, !gives_back) << Events(1);
    ASSERT_TRUE(Ask(&Engine::Resume, 1).ok());
    Pass(absl::Seconds(20));
    EXPECT_EQ(Job(1).state, JobState::kRunning) << Events(1);
    EXPECT_GT(Job(1).progress.step, step);
    EXPECT_EQ(Job(1).attempts, gives_back ? 2 : 1);
    computed_twice_ = 0;  // what waited for its turn as the disk was full
    ForgetServer();
  }
}

}  // namespace
}  // namespace roundhouse::sim
