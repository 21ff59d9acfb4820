#include "base/files/file_fault.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files/descriptor.h"
#include "base/files/durable_file.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;

class FileFaultTest : public testing::Test {
 protected:
  FileFaultTest() : root_(testing::TempDir() + "/file_fault_test") {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~FileFaultTest() override {
    EXPECT_TRUE(ArmFileFaults("").ok());
    fs::remove_all(root_);
  }

  static void Arm(const std::string& text) {
    const absl::Status status = ArmFileFaults(text);
    ASSERT_TRUE(status.ok()) << status;
  }
  std::string Text(const std::string& name) const {
    std::ifstream file(root_ + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  absl::Status Put(FileSite site, const std::string& text) const {
    return WriteFileDurably(site, root_ + "/file", text);
  }
  // What a process does that has the faults; whether it was killed.
  static bool DiesOf(const std::string& faults,
                     const std::function<void()>& work) {
    const pid_t child = fork();
    if (child == 0) {
      if (!ArmFileFaults(faults).ok()) _exit(2);
      work();
      _exit(0);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  }

  const std::string root_;
};

TEST_F(FileFaultTest, SitesHaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const FileSite site : kFileSites) {
    EXPECT_TRUE(names.insert(site.name).second) << site.name;
    EXPECT_TRUE(ArmFileFaults(std::string(site.name) + ":EIO").ok());
  }
}

TEST_F(FileFaultTest, MalformedFaultsAreRefusedByName) {
  for (const char* text :
       {"job.finish_mark", "nowhere:EIO", "job.finish_mark:ENOENT",
        "job.finish_mark:EIO:", "job.finish_mark:EIO:0",
        "job.finish_mark:EIO:-1", "job.finish_mark:EIO:s",
        "job.finish_mark:EIO:1:x", "job.finish_mark:EIO:1:1:1"}) {
    const absl::Status status = ArmFileFaults(text);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_TRUE(absl::StrContains(std::string(status.message()), text))
        << status;
  }
}

TEST_F(FileFaultTest, AnErrorComesOnceOrSoManyTimesOrForGood) {
  Arm("job.finish_mark:ENOSPC");
  EXPECT_TRUE(absl::IsResourceExhausted(Put(kFinishMark, "a")));
  EXPECT_TRUE(Put(kFinishMark, "b").ok());
  Arm("job.finish_mark:EIO:2");
  EXPECT_TRUE(absl::IsInternal(Put(kFinishMark, "c")));
  EXPECT_TRUE(absl::IsInternal(Put(kFinishMark, "c")));
  EXPECT_TRUE(Put(kFinishMark, "d").ok());
  Arm("job.finish_mark:ENOSPC:ever");
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(absl::IsResourceExhausted(Put(kFinishMark, "e")));
  }
  EXPECT_TRUE(Put(kJobSamples, "f").ok());  // another site
  EXPECT_EQ(Text("file"), "f");
}

TEST_F(FileFaultTest, AnErrorCanLastForSecondsAndBeginLater) {
  // Opened, then written: passes of this kind are counted call by call.
  Arm("job.finish_mark:EIO:3600s:1");
  const absl::Status status = Put(kFinishMark, "a");
  EXPECT_TRUE(absl::IsInternal(status));
  EXPECT_TRUE(absl::StrContains(std::string(status.message()), "writing"))
      << status;
  EXPECT_TRUE(absl::IsInternal(Put(kFinishMark, "b")));
}

TEST_F(FileFaultTest, ShortWritesAreGoneOnWith) {
  Arm("job.finish_mark:short:4");
  EXPECT_TRUE(Put(kFinishMark, "0123456789").ok());
  EXPECT_EQ(Text("file"), "0123456789");
}

TEST_F(FileFaultTest, AFlippedBitIsOneAndAnotherOneEachTime) {
  Arm("job.finish_mark:flip:ever");
  std::set<std::string> seen;
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(Put(kFinishMark, std::string(100, '\0')).ok());
    const std::string text = Text("file");
    int bits = 0;
    for (const char byte : text) {
      bits += __builtin_popcount(static_cast<unsigned char>(byte));
    }
    EXPECT_EQ(bits, 1);
    seen.insert(text);
  }
  EXPECT_GT(seen.size(), 4u);
  Arm("checkpoint.read:flip");
  const auto read = ReadWholeFile(kCheckpointRead, root_ + "/file", 100);
  EXPECT_NE(*read, Text("file"));
}

TEST_F(FileFaultTest, ATornWriteLeavesHalfUnderTheTemporaryName) {
  ASSERT_TRUE(Put(kFinishMark, "old").ok());
  EXPECT_TRUE(DiesOf("job.finish_mark:torn",
                     [this] { Put(kFinishMark, "0123456789").IgnoreError(); }));
  EXPECT_EQ(Text("file"), "old");
  EXPECT_EQ(Text("file.tmp"), "01234");
}

// Power fails at each sync and rename in turn: what was said to be written is
// there, and the rest is as it was.
TEST_F(FileFaultTest, WhatWasSyncedOutlivesAFailureOfPower) {
  bool died = true;
  for (int after = 0; died; ++after) {
    ASSERT_LT(after, 100);
    ASSERT_TRUE(Put(kFinishMark, "old").ok());
    died = DiesOf("job.finish_mark:lost:1:" + std::to_string(after), [this] {
      if (!Put(kFinishMark, "first").ok()) return;
      std::ofstream(root_ + "/said") << "first";
      if (!Put(kFinishMark, "second").ok()) return;
      std::ofstream(root_ + "/said") << "second";
    });
    const std::string said = Text("said");
    const std::string found = Text("file");
    EXPECT_EQ(found, said.empty() ? "old" : said) << after;
    fs::remove(root_ + "/said");
  }
}

// What the door is there for: without its syncs the new contents are lost.
TEST_F(FileFaultTest, WhatWasNotSyncedIsLost) {
  ASSERT_TRUE(Put(kFinishMark, "old").ok());
  EXPECT_TRUE(DiesOf("job.finish_mark:lost;job.samples:lost", [this] {
    const std::string path = root_ + "/file";
    const int fd = file_calls::Open(kJobMetrics, path + ".tmp",
                                    O_WRONLY | O_CREAT | O_CLOEXEC, 0640);
    file_calls::Write(kJobMetrics, fd, "new", 3);
    file_calls::Rename(kJobMetrics, path + ".tmp", path, 0);
    Put(kJobSamples, "x").IgnoreError();  // where power fails
  }));
  EXPECT_EQ(Text("file"), "old");
  EXPECT_FALSE(fs::exists(root_ + "/file.tmp"));
}

TEST_F(FileFaultTest, RangesAndExchangesAreTakenBack) {
  ASSERT_TRUE(Put(kFinishMark, "0123456789").ok());
  fs::create_directories(root_ + "/one");
  fs::create_directories(root_ + "/two/inside");
  EXPECT_TRUE(DiesOf("merge.sync:lost", [this] {
    const int fd =
        file_calls::Open(kMergeWrite, root_ + "/file", O_WRONLY | O_CLOEXEC, 0);
    file_calls::WriteAt(kMergeWrite, fd, "abc", 3, 2);
    file_calls::WriteAt(kMergeWrite, fd, "abc", 3, 9);
    file_calls::Rename(kOutputRename, root_ + "/one", root_ + "/two", 2);
    file_calls::Sync(kMergeSync, fd);
  }));
  EXPECT_EQ(Text("file"), std::string("01\0\0\0"
                                      "5678\0",
                                      10));
  EXPECT_TRUE(fs::exists(root_ + "/two/inside"));
}

TEST_F(FileFaultTest, RemovalsFailAndTakeNoPassWhereNothingIs) {
  const std::string path = root_ + "/file";
  Arm("job.finish_mark:EIO");
  EXPECT_TRUE(RemoveFile(kFinishMark, path).ok());
  std::ofstream(path) << "text";
  EXPECT_TRUE(absl::IsInternal(RemoveFile(kFinishMark, path)));
  EXPECT_TRUE(fs::exists(path));
  EXPECT_TRUE(RemoveFile(kFinishMark, path).ok());
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(FileFaultTest, WhatAFailureLeavesIsDiscardedWithoutAPass) {
  // Opening, writing and syncing go well; the rename fails, once.
  Arm("job.finish_mark:ENOSPC:1:3");
  EXPECT_TRUE(absl::IsResourceExhausted(Put(kFinishMark, "a")));
  EXPECT_FALSE(fs::exists(root_ + "/file.tmp"));
  Arm("job.finish_mark:ENOSPC:ever");
  std::ofstream(root_ + "/file.tmp") << "text";
  file_calls::Discard(kFinishMark, root_ + "/file.tmp");
  EXPECT_FALSE(fs::exists(root_ + "/file.tmp"));
}

TEST_F(FileFaultTest, RoomAndSocketsCanBeRefused) {
  const Descriptor file(file_calls::Open(kStateReserve, root_ + "/file",
                                         O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_GE(file.get(), 0);
  Arm("state.reserve:ENOSPC;listen.socket:EIO");
  EXPECT_EQ(file_calls::Allocate(kStateReserve, file.get(), 4096), -1);
  EXPECT_EQ(errno, ENOSPC);
  EXPECT_EQ(file_calls::Allocate(kStateReserve, file.get(), 4096), 0);
  EXPECT_EQ(fs::file_size(root_ + "/file"), 4096u);
  struct sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  absl::StrCat(root_, "/s").copy(address.sun_path, sizeof(address.sun_path));
  const Descriptor socket_file(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto* const named = reinterpret_cast<const sockaddr*>(&address);
  EXPECT_EQ(file_calls::Bind(kListenSocket, socket_file.get(), named,
                             sizeof(address)),
            -1);
  EXPECT_EQ(errno, EIO);
}

TEST_F(FileFaultTest, AProcessThatTakesADeadOnesPlaceLives) {
  EXPECT_EQ(FaultsThatDoNotKill(
                "shard.write:torn;shard.sync:EIO:ever;merge.sync:lost:1:2"),
            "shard.sync:EIO:ever");
  Arm("shard.write:short:2");
  EXPECT_EQ(ArmedFileFaults(), "shard.write:short:2");
}

}  // namespace
}  // namespace roundhouse
