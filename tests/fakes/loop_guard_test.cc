// Shows that the guard sees what opens files in other ways than open(), and
// nothing else.
#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "server/loop/event_loop.h"

namespace roundhouse {
namespace {

constexpr char kSeen[] = "the event loop's thread opens a file";

class LoopGuardTest : public testing::Test {
 protected:
  LoopGuardTest() : path_(testing::TempDir() + "/loop_guard_test") {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    std::filesystem::create_directories(path_);
    std::ofstream(path_ + "/file") << "text";
  }

  static void OnLoop(const std::function<void()>& call) {
    const std::unique_ptr<EventLoop> loop = *EventLoop::Create();
    loop->After(absl::ZeroDuration(), [&] {
      call();
      loop->Quit();
    });
    loop->Run();
  }

  const std::string path_;
};

TEST_F(LoopGuardTest, SeesStreamsAndFolders) {
  EXPECT_DEATH(OnLoop([this] { std::ifstream file(path_ + "/file"); }), kSeen);
  EXPECT_DEATH(OnLoop([this] { std::ofstream file(path_ + "/new"); }), kSeen);
  EXPECT_DEATH(
      OnLoop([this] { std::filesystem::directory_iterator folder(path_); }),
      kSeen);
  EXPECT_DEATH(OnLoop([this] { opendir(path_.c_str()); }), kSeen);
}

TEST_F(LoopGuardTest, SeesCallsOfTheSystem) {
  const std::string file = path_ + "/file";
  EXPECT_DEATH(OnLoop([&] { open(file.c_str(), O_RDONLY); }), kSeen);
  EXPECT_DEATH(OnLoop([&] { open(path_.c_str(), O_PATH | O_DIRECTORY); }),
               kSeen);
  EXPECT_DEATH(OnLoop([&] {
                 open_how how = {};
                 syscall(SYS_openat2, AT_FDCWD, file.c_str(), &how,
                         sizeof(how));
               }),
               kSeen);
}

TEST_F(LoopGuardTest, SeesNamesThatAreLookedUp) {
  const std::string file = path_ + "/file";
  struct stat info;
  EXPECT_DEATH(OnLoop([&] { (void)std::filesystem::exists(file); }), kSeen);
  EXPECT_DEATH(OnLoop([&] { (void)std::filesystem::file_size(file); }), kSeen);
  EXPECT_DEATH(OnLoop([&] { (void)std::filesystem::canonical(file); }), kSeen);
  EXPECT_DEATH(OnLoop([&] { stat(file.c_str(), &info); }), kSeen);
  EXPECT_DEATH(OnLoop([&] { lstat(file.c_str(), &info); }), kSeen);
  EXPECT_DEATH(OnLoop([&] { fstatat(AT_FDCWD, file.c_str(), &info, 0); }),
               kSeen);
  EXPECT_DEATH(OnLoop([&] { (void)!access(file.c_str(), R_OK); }), kSeen);
}

TEST_F(LoopGuardTest, WhatIsOpenMayBeLookedAt) {
  const int file = open((path_ + "/file").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(file, 0);
  OnLoop([&] {
    struct stat info;
    EXPECT_EQ(fstat(file, &info), 0);
    EXPECT_TRUE(std::filesystem::exists("/proc/self/status"));
  });
  close(file);
}

TEST_F(LoopGuardTest, WritesALineForEachCallWhereItIsToldTo) {
  const std::string report = path_ + "/report";
  std::filesystem::remove(report);
  setenv("ROUNDHOUSE_LOOP_GUARD", report.c_str(), /*overwrite=*/1);
  OnLoop([this] { std::ifstream file(path_ + "/file"); });
  unsetenv("ROUNDHOUSE_LOOP_GUARD");
  std::ifstream lines(report);
  std::string line, another;
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_NE(line.find("\t" + path_ + "/file\t"), std::string::npos) << line;
  EXPECT_FALSE(std::getline(lines, another)) << another;
}

TEST_F(LoopGuardTest, SeesWhatCouldNotBeOpened) {
  EXPECT_DEATH(OnLoop([this] { std::ifstream file(path_ + "/none"); }), kSeen);
}

TEST_F(LoopGuardTest, OtherThreadsAndOtherTimesMayOpenFiles) {
  std::ifstream before(path_ + "/file");
  OnLoop([this] {
    std::thread([this] { std::ifstream file(path_ + "/file"); }).join();
  });
  std::ifstream after(path_ + "/file");
  EXPECT_TRUE(before.is_open() && after.is_open());
}

TEST_F(LoopGuardTest, WhatIsNotOnADiskMayBeOpened) {
  OnLoop([] {
    EXPECT_TRUE(std::ifstream("/proc/self/statm").is_open());
    const int null = open("/dev/null", O_RDONLY);
    EXPECT_GE(null, 0);
    close(null);
    const int memory = memfd_create("memory", MFD_CLOEXEC);
    EXPECT_GE(memory, 0);
    close(memory);
  });
}

}  // namespace
}  // namespace roundhouse
