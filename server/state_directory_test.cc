#include "server/state_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;

class StateDirectoryTest : public testing::Test {
 protected:
  StateDirectoryTest() : root_(fs::path(testing::TempDir()) / "state_test") {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~StateDirectoryTest() override { fs::remove_all(root_); }

  absl::StatusOr<std::unique_ptr<StateDirectory>> Lock() {
    return StateDirectory::Lock(path(), absl::ZeroDuration());
  }
  std::unique_ptr<StateDirectory> MustLock() {
    auto locked = Lock();
    EXPECT_TRUE(locked.ok()) << locked.status();
    std::ofstream(path() + "/jobs.db") << "store";
    EXPECT_TRUE((*locked)->Keep("jobs.db").ok());
    return *std::move(locked);
  }
  void ExpectExcluded() {
    const absl::Status status = Lock().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_TRUE(absl::StrContains(status.message(),
                                  "another roundhoused uses " + path()))
        << status;
  }
  static void ExpectGone(const absl::Status& status, const std::string& what) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(ErrorReason(status), FieldReason::kStateDirectoryGone);
    EXPECT_TRUE(absl::StrContains(status.message(), what)) << status;
  }
  std::string path() const { return root_ / "state"; }

  const fs::path root_;
};

TEST_F(StateDirectoryTest, OneDaemonAtATime) {
  auto first = MustLock();
  ExpectExcluded();
  first.reset();
  EXPECT_TRUE(Lock().ok());
}

TEST_F(StateDirectoryTest, WithoutTheLockFileItIsLockedAllTheSame) {
  const auto first = MustLock();
  ASSERT_TRUE(fs::remove(path() + "/lock"));
  ExpectExcluded();
}

TEST_F(StateDirectoryTest, UnderAnotherNameItIsLockedAllTheSame) {
  const auto first = MustLock();
  fs::rename(path(), root_ / "moved");
  EXPECT_EQ(StateDirectory::Lock(root_ / "moved", absl::ZeroDuration())
                .status()
                .code(),
            absl::StatusCode::kFailedPrecondition);
}

// A daemon of before the directory's lock has the file only, a new one has
// what the old one looks at.
TEST_F(StateDirectoryTest, ExcludesAndIsExcludedByOlderDaemons) {
  fs::create_directories(path());
  const std::string file = path() + "/lock";
  const int fd = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(flock(fd, LOCK_EX | LOCK_NB), 0);
  ExpectExcluded();
  ASSERT_EQ(flock(fd, LOCK_UN), 0);
  const auto locked = Lock();
  ASSERT_TRUE(locked.ok()) << locked.status();
  EXPECT_NE(flock(fd, LOCK_EX | LOCK_NB), 0);
  close(fd);
}

// A worker that outlives its daemon.
TEST_F(StateDirectoryTest, WhoInheritedItHoldsIt) {
  auto first = MustLock();
  const int worker = dup(first->fd());
  first.reset();
  ExpectExcluded();
  close(worker);
  EXPECT_TRUE(Lock().ok());
}

TEST_F(StateDirectoryTest, APlaceThatCannotBeUsedIsNamed) {
  std::ofstream(path()) << "a file";
  const absl::Status status = Lock().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "--state-dir: opening"))
      << status;
}

TEST_F(StateDirectoryTest, ADirectoryThatIsThereIsWell) {
  const auto state = MustLock();
  EXPECT_TRUE(state->Check().ok()) << state->Check();
}

TEST_F(StateDirectoryTest, ADeletedDirectoryIsNoticed) {
  const auto state = MustLock();
  fs::remove_all(path());
  ExpectGone(state->Check(), "it is gone");
}

TEST_F(StateDirectoryTest, AReplacedDirectoryIsNoticedUntilItIsBack) {
  const auto state = MustLock();
  fs::rename(path(), root_ / "moved");
  ExpectGone(state->Check(), "it is gone");
  fs::copy(root_ / "moved", path());
  ExpectGone(state->Check(), "it was replaced");
  fs::remove_all(path());
  fs::rename(root_ / "moved", path());
  EXPECT_TRUE(state->Check().ok()) << state->Check();
}

TEST_F(StateDirectoryTest, AStoreThatIsGoneOrAnotherIsNoticed) {
  const auto state = MustLock();
  fs::rename(path() + "/jobs.db", path() + "/old.db");
  ExpectGone(state->Check(), "jobs.db is gone");
  fs::copy(path() + "/old.db", path() + "/jobs.db");
  ExpectGone(state->Check(), "jobs.db was replaced");
  ExpectGone(state->Keep("none.db"), "none.db");
}

TEST_F(StateDirectoryTest, AWatchTellsOfEachChangeOnce) {
  const auto state = MustLock();
  const auto loop = *EventLoop::Create();
  std::vector<bool> told;
  const StateWatch watch(
      *loop, *state,
      [&](const absl::Status& status) {
        told.push_back(status.ok());
        if (!status.ok()) {
          fs::rename(root_ / "moved", path());
        } else {
          // Looks that find nothing new tell nothing.
          loop->After(absl::Milliseconds(20), [&] { loop->Quit(); });
        }
      },
      absl::Milliseconds(1));
  loop->After(absl::Milliseconds(5),
              [&] { fs::rename(path(), root_ / "moved"); });
  loop->Run();
  EXPECT_EQ(told, (std::vector<bool>{false, true}));
}

}  // namespace
}  // namespace roundhouse
