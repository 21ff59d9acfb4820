// Which folders a download removes, and how one gets its name where the file
// system can do less than Linux's own.
#include "client/transfer/own_folder.h"

#include <errno.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "gtest/gtest.h"

namespace roundhouse::client {
namespace {

namespace fs = std::filesystem;

class OwnFolderTest : public testing::Test {
 protected:
  OwnFolderTest() {
    dir_ = fs::path(testing::TempDir()) /
           testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(dir_);
    Write("new.part/.roundhouse", "key");
    Write("new.part/sub/weights", "new");
  }

  void Write(const std::string& name, const std::string& text) {
    fs::create_directories((dir_ / name).parent_path());
    std::ofstream(dir_ / name) << text;
  }
  std::string Read(const std::string& name) {
    std::stringstream text;
    text << std::ifstream(dir_ / name).rdbuf();
    return text.str();
  }
  absl::Status Publish(WhatIsThere what, const RenameCall& rename) {
    return PublishFolder(dir_ / "new.part", dir_ / "new", what, rename);
  }
  // As NFS and FUSE do.
  static int WithoutFlags(const std::string& from, const std::string& to,
                          unsigned flags) {
    return flags == 0 ? RenameOnDisk(from, to, 0) : EINVAL;
  }

  fs::path dir_;
};

TEST_F(OwnFolderTest, WhatTheUserHasIsNotRemoved) {
  Write("mine/data.jsonl", "precious");
  Write("file", "precious");
  fs::create_directory_symlink(dir_ / "new.part", dir_ / "link");
  for (const char* name : {"mine", "file", "link"}) {
    const absl::Status status = RemoveOwnFolder(dir_ / name);
    EXPECT_TRUE(absl::IsAlreadyExists(status)) << name << status;
  }
  EXPECT_EQ(Read("mine/data.jsonl"), "precious");
  EXPECT_EQ(Read("file"), "precious");
  EXPECT_EQ(Read("new.part/sub/weights"), "new");
  EXPECT_TRUE(RemoveOwnFolder(dir_ / "new.part").ok());
  EXPECT_FALSE(fs::exists(dir_ / "new.part"));
  fs::create_directories(dir_ / "empty");
  EXPECT_TRUE(RemoveOwnFolder(dir_ / "empty").ok());
  EXPECT_TRUE(RemoveOwnFolder(dir_ / "empty").ok());
}

TEST_F(OwnFolderTest, TheNewOneHasItsNameAndNoFileOfOurs) {
  for (const RenameCall& rename :
       {RenameCall(RenameOnDisk), RenameCall(WithoutFlags)}) {
    ASSERT_TRUE(Publish(WhatIsThere::kStays, rename).ok());
    EXPECT_EQ(Read("new/sub/weights"), "new");
    EXPECT_FALSE(fs::exists(dir_ / "new/.roundhouse"));
    // Again: it stays, and then it goes.
    Write("new.part/.roundhouse", "key");
    Write("new.part/sub/weights", "newer");
    EXPECT_TRUE(absl::IsAlreadyExists(Publish(WhatIsThere::kStays, rename)));
    EXPECT_EQ(Read("new/sub/weights"), "new");
    EXPECT_EQ(Read("new.part/.roundhouse"), "key");
    const absl::Status replaced = Publish(WhatIsThere::kGoes, rename);
    ASSERT_TRUE(replaced.ok()) << replaced;
    EXPECT_EQ(Read("new/sub/weights"), "newer");
    EXPECT_FALSE(fs::exists(dir_ / "new/.roundhouse"));
    EXPECT_FALSE(fs::exists(dir_ / "new.part"));
    EXPECT_FALSE(fs::exists(dir_ / "new.part.old"));
    fs::remove_all(dir_ / "new");
    Write("new.part/.roundhouse", "key");
    Write("new.part/sub/weights", "new");
  }
}

// Until the rename it is known as ours, so that the same command goes on.
TEST_F(OwnFolderTest, ARenameThatFailsLeavesBothAsTheyWere) {
  Write("new/sub/weights", "old");
  const auto fails = [&](const std::string& from, const std::string& to,
                         unsigned flags) {
    if (flags != 0) return EINVAL;
    return from == dir_ / "new.part" ? EIO : RenameOnDisk(from, to, flags);
  };
  EXPECT_FALSE(Publish(WhatIsThere::kGoes, fails).ok());
  EXPECT_EQ(Read("new.part/.roundhouse"), "key");
  EXPECT_EQ(Read("new.part/sub/weights"), "new");
  EXPECT_EQ(Read("new/sub/weights"), "old");
  EXPECT_FALSE(fs::exists(dir_ / "new/.roundhouse"));
  EXPECT_FALSE(fs::exists(dir_ / "new.part.old"));
}

}  // namespace
}  // namespace roundhouse::client
