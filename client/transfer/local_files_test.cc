#include "client/transfer/local_files.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/files/durable_file.h"
#include "gtest/gtest.h"

namespace roundhouse::client {
namespace {

namespace fs = std::filesystem;

class LocalFilesTest : public testing::Test {
 protected:
  LocalFilesTest() {
    dir_ = fs::path(testing::TempDir()) /
           testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  void Write(const std::string& name, const std::string& text) {
    fs::create_directories((dir_ / name).parent_path());
    std::ofstream(dir_ / name) << text;
  }
  static bool GoOn(uint64_t) { return true; }

  fs::path dir_;
};

TEST_F(LocalFilesTest, AFolderIsItsFilesByName) {
  Write("b.jsonl", "b");
  Write("train/a.jsonl", "aa");
  Write(".git/config", "x");
  Write("train/.hidden", "x");
  auto found = FindLocalFiles(dir_);
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->files.size(), 2u);
  EXPECT_EQ(found->files[0].name, "b.jsonl");
  EXPECT_EQ(found->files[1].name, "train/a.jsonl");
  EXPECT_EQ(found->bytes(), 3u);
  EXPECT_EQ(found->left_out.size(), 2u);
  ASSERT_TRUE(HashLocalFiles(&*found, GoOn).ok());
  EXPECT_EQ(found->files[1].sha256, Sha256Of("aa"));
}

TEST_F(LocalFilesTest, AFileGoesByItsOwnName) {
  Write("data/a.jsonl", "x");
  fs::create_symlink(dir_ / "data/a.jsonl", dir_ / "link.jsonl");
  // What is named itself may be a link; its name is the one that was given.
  const auto found = FindLocalFiles(dir_ / "link.jsonl");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->files[0].name, "link.jsonl");
}

TEST_F(LocalFilesTest, WhatIsNoFileIsRefusedByName) {
  const auto refused = [this](const std::string& name,
                              const std::string& what) {
    const absl::Status status = FindLocalFiles(dir_).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_NE(std::string(status.message()).find(name), std::string::npos);
    EXPECT_NE(std::string(status.message()).find(what), std::string::npos)
        << status;
    fs::remove(dir_ / name);
  };
  Write("a", "x");
  fs::create_symlink("/etc/passwd", dir_ / "link");
  refused("link", "a link");
  ASSERT_EQ(mkfifo((dir_ / "pipe").c_str(), 0600), 0);
  refused("pipe", "a pipe");
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {.sun_family = AF_UNIX};
  fs::current_path(dir_);
  std::strcpy(address.sun_path, "socket");
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)),
            0);
  close(fd);
  refused("socket", "a socket");
  EXPECT_TRUE(FindLocalFiles(dir_).ok());
  const absl::Status device = FindLocalFiles("/dev/null").status();
  EXPECT_NE(std::string(device.message()).find("a device"), std::string::npos);
  EXPECT_TRUE(absl::IsNotFound(FindLocalFiles(dir_ / "none").status()));
  fs::create_directories(dir_ / "empty");
  EXPECT_FALSE(FindLocalFiles(dir_ / "empty").ok());
}

TEST_F(LocalFilesTest, AChangeIsNoticed) {
  Write("a", "abcdef");
  auto found = FindLocalFiles(dir_ / "a");
  ASSERT_TRUE(found.ok());
  std::string piece;
  ASSERT_TRUE(ReadLocalFile(found->files[0], 2, 3, &piece).ok());
  EXPECT_EQ(piece, "cde");
  Write("a", "abcdefg");
  EXPECT_TRUE(
      absl::IsFailedPrecondition(ReadLocalFile(found->files[0], 2, 3, &piece)));
  EXPECT_TRUE(absl::IsFailedPrecondition(HashLocalFiles(&*found, GoOn)));
  // Another file with the same name and size.
  found = FindLocalFiles(dir_ / "a");
  Write("b", "abcdefg");
  fs::rename(dir_ / "b", dir_ / "a");
  EXPECT_TRUE(
      absl::IsFailedPrecondition(ReadLocalFile(found->files[0], 0, 3, &piece)));
}

TEST_F(LocalFilesTest, HashingEndsWhenItIsNotWanted) {
  Write("a", "abc");
  auto found = FindLocalFiles(dir_ / "a");
  EXPECT_TRUE(absl::IsCancelled(
      HashLocalFiles(&*found, [](uint64_t) { return false; })));
}

}  // namespace
}  // namespace roundhouse::client
