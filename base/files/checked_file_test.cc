#include "base/files/checked_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "base/files/descriptor.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;

class CheckedFileTest : public testing::Test {
 protected:
  CheckedFileTest() : top_(fs::canonical(testing::TempDir()) / "checked") {
    fs::remove_all(top_);
    fs::create_directories(top_ / "root/folder");
    fs::create_directories(top_ / "outside");
    Write("root/folder/file", "inside");
    Write("outside/file", "secret");
  }
  ~CheckedFileTest() override { fs::remove_all(top_); }

  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(top_ / name, std::ios::binary) << text;
  }
  // As it is now, links followed.
  CheckedFile Seen(const std::string& name) const {
    struct stat info;
    EXPECT_EQ(stat((top_ / name).c_str(), &info), 0);
    return {top_ / "root", top_ / name, IdentityOf(info)};
  }
  static std::string Text(const absl::StatusOr<Descriptor>& descriptor) {
    EXPECT_TRUE(descriptor.ok()) << descriptor.status();
    if (!descriptor.ok()) return "";
    char buffer[64];
    const ssize_t got = read(descriptor->get(), buffer, sizeof(buffer));
    return std::string(buffer, got > 0 ? static_cast<size_t>(got) : 0);
  }
  static void ExpectChanged(const CheckedFile& file) {
    const auto opened = OpenChecked(file);
    EXPECT_EQ(opened.status().code(), absl::StatusCode::kFailedPrecondition)
        << opened.status();
    EXPECT_TRUE(absl::StrContains(opened.status().message(),
                                  file.path + ": changed since"))
        << opened.status();
  }

  const fs::path top_;
};

TEST_F(CheckedFileTest, TheSameFileIsOpened) {
  CheckedFile file = Seen("root/folder/file");
  EXPECT_EQ(Text(OpenChecked(file)), "inside");
  file.root += "/folder";
  EXPECT_EQ(Text(OpenChecked(file)), "inside");
  file.root = "";
  EXPECT_EQ(Text(OpenChecked(file)), "inside");
  file.identity.device = 0;  // stored before a reboot
  EXPECT_EQ(Text(OpenChecked(file)), "inside");
}

TEST_F(CheckedFileTest, AnotherFileOrStateIsNot) {
  const CheckedFile file = Seen("root/folder/file");
  for (int field = 0; field < 4; ++field) {
    CheckedFile other = file;
    if (field == 0) other.identity.device += 1;
    if (field == 1) other.identity.inode += 1;
    if (field == 2) other.identity.size_bytes += 1;
    if (field == 3) other.identity.mtime_ns -= 1;
    ExpectChanged(other);
  }
  Write("root/folder/new", "inside");
  fs::rename(top_ / "root/folder/new", top_ / "root/folder/file");
  ExpectChanged(file);
  fs::remove(top_ / "root/folder/file");
  EXPECT_TRUE(absl::IsNotFound(OpenChecked(file).status()));
}

TEST_F(CheckedFileTest, NothingOutsideIsOpened) {
  const CheckedFile file = Seen("root/folder/file");
  CheckedFile outside = Seen("outside/file");
  // Each way out, by a file that has been checked to be just this one.
  fs::create_symlink(top_ / "outside/file", top_ / "root/absolute");
  fs::create_symlink("../outside/file", top_ / "root/relative");
  fs::create_directory_symlink(top_ / "outside", top_ / "root/way");
  for (const char* name : {"root/absolute", "root/relative", "root/way/file",
                           "root/../outside/file"}) {
    outside.path = top_ / name;
    ExpectChanged(outside);
  }
  // A folder is swapped for a link to another one's copy.
  fs::rename(top_ / "root/folder", top_ / "root/away");
  fs::create_directory_symlink(top_ / "outside", top_ / "root/folder");
  ExpectChanged(file);
  fs::remove(top_ / "root/folder");
  fs::create_directory_symlink("away", top_ / "root/folder");
  EXPECT_EQ(Text(OpenChecked(file)), "inside");  // the same, beneath
}

TEST_F(CheckedFileTest, WhatIsNoFileIsNotOpened) {
  const fs::path fifo = top_ / "root/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  ExpectChanged(Seen("root/fifo"));  // and does not wait
  ExpectChanged(Seen("root/folder"));
}

}  // namespace
}  // namespace roundhouse
