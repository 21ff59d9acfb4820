#include "base/files/remove_tree.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files/file_fault.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;

class RemoveTreeTest : public testing::Test {
 protected:
  RemoveTreeTest() : root_(testing::TempDir() + "/remove_tree_test") {
    fs::remove_all(root_);
    fs::create_directories(root_ + "/tree/inner/innermost");
    for (const char* name :
         {"kept", "tree/a", "tree/inner/b", "tree/inner/innermost/c"}) {
      std::ofstream(absl::StrCat(root_, "/", name)) << "text";
    }
  }
  ~RemoveTreeTest() override {
    EXPECT_TRUE(ArmFileFaults("").ok());
    fs::remove_all(root_);
  }

  absl::Status Remove(const std::string& name) const {
    return RemoveTree(kLeftoverRemove, absl::StrCat(root_, "/", name));
  }
  bool Exists(const std::string& name) const {
    return fs::exists(fs::symlink_status(absl::StrCat(root_, "/", name)));
  }

  const std::string root_;
};

TEST_F(RemoveTreeTest, AFolderGoesWithAllThatIsInIt) {
  ASSERT_EQ(mkfifo((root_ + "/tree/pipe").c_str(), 0600), 0);
  EXPECT_TRUE(Remove("tree").ok());
  EXPECT_FALSE(Exists("tree"));
  EXPECT_TRUE(Exists("kept"));
}

TEST_F(RemoveTreeTest, AFileGoes) {
  EXPECT_TRUE(Remove("tree/a").ok());
  EXPECT_FALSE(Exists("tree/a"));
  EXPECT_TRUE(Exists("tree/inner/b"));
}

TEST_F(RemoveTreeTest, NothingThereIsWellAndTakesNoFault) {
  ASSERT_TRUE(ArmFileFaults("leftover.remove:EIO").ok());
  EXPECT_TRUE(Remove("nothing").ok());
  EXPECT_TRUE(absl::IsInternal(Remove("tree/a")));
}

TEST_F(RemoveTreeTest, LinksAreRemovedAndNotFollowed) {
  fs::create_directories(root_ + "/elsewhere");
  std::ofstream(root_ + "/elsewhere/file") << "text";
  fs::create_directory_symlink(root_ + "/elsewhere", root_ + "/tree/link");
  fs::create_symlink(root_ + "/kept", root_ + "/tree/inner/link");
  fs::create_directory_symlink(root_ + "/elsewhere", root_ + "/link");
  EXPECT_TRUE(Remove("tree").ok());
  EXPECT_TRUE(Remove("link").ok());
  EXPECT_FALSE(Exists("tree"));
  EXPECT_FALSE(Exists("link"));
  EXPECT_TRUE(Exists("elsewhere/file"));
  EXPECT_TRUE(Exists("kept"));
}

TEST_F(RemoveTreeTest, WhatFailsIsToldAndTheRestGoes) {
  for (const auto& [kind, code] :
       {std::pair("ENOSPC", absl::StatusCode::kResourceExhausted),
        std::pair("EIO", absl::StatusCode::kInternal)}) {
    ASSERT_TRUE(ArmFileFaults(absl::StrCat("leftover.remove:", kind)).ok());
    fs::create_directories(root_ + "/two");
    std::ofstream(root_ + "/two/a") << "text";
    std::ofstream(root_ + "/two/b") << "text";
    const absl::Status status = Remove("two");
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_TRUE(absl::StrContains(std::string(status.message()), "/two/"))
        << status;
    // One of the two files is left.
    EXPECT_NE(Exists("two/a"), Exists("two/b"));
    // A pass that goes well removes it, and the folder.
    EXPECT_TRUE(Remove("two").ok());
    EXPECT_FALSE(Exists("two"));
  }
}

TEST_F(RemoveTreeTest, WhereNothingCanBeRemovedAllStays) {
  ASSERT_TRUE(ArmFileFaults("leftover.remove:EIO:ever").ok());
  EXPECT_TRUE(absl::IsInternal(Remove("tree")));
  EXPECT_TRUE(Exists("tree/inner/innermost/c"));
}

TEST_F(RemoveTreeTest, TooManyFoldersAreRefused) {
  std::string path = root_ + "/deep";
  for (int i = 0; i <= kMaxRemovedDepth; ++i) path += "/d";
  fs::create_directories(path);
  std::ofstream(root_ + "/deep/file") << "text";
  const absl::Status status = Remove("deep");
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_TRUE(absl::StrContains(std::string(status.message()), "/deep/d/d/"));
  EXPECT_FALSE(Exists("deep/file"));
}

}  // namespace
}  // namespace roundhouse
