#include "server/spec/paths.h"

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;

class PathsTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/rh_paths.XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    top_ = fs::canonical(name);
    for (const char* d : {"a/models/m", "b/data", "secret", "own", "hub/x"}) {
      fs::create_directories(top_ / d);
    }
    for (const char* f : {"a/one.jsonl", "b/one.jsonl", "b/data/two.jsonl",
                          "secret/key", "own/result", "hub/x/blob"}) {
      std::ofstream(top_ / f) << "x";
    }
    fs::create_symlink(top_ / "secret", top_ / "a/way_out");
    fs::create_symlink("one.jsonl", top_ / "a/link.jsonl");
    fs::create_symlink(top_ / "own/result", top_ / "a/own_link");
    auto roots = DataRoots::Create({.roots = {top_ / "a", top_ / "b/"},
                                    .own = {top_ / "own"},
                                    .hub_cache = top_ / "hub"});
    ASSERT_TRUE(roots.ok()) << roots.status();
    roots_ = *std::move(roots);
  }
  void TearDown() override { fs::remove_all(top_); }

  std::string Ok(const std::string& path, PathKind kind = PathKind::kFile) {
    const auto found = roots_->Resolve("dataset", path, kind);
    EXPECT_TRUE(found.ok()) << found.status();
    return found.value_or("");
  }
  absl::Status Bad(const std::string& path, PathKind kind = PathKind::kFile) {
    const absl::Status s = roots_->Resolve("dataset", path, kind).status();
    EXPECT_TRUE(absl::IsInvalidArgument(s)) << path << ": " << s;
    EXPECT_EQ(ErrorField(s), "dataset");
    EXPECT_TRUE(absl::StrContains(std::string(s.message()),
                                  absl::StrCat("dataset: \"", path, "\"")))
        << s;
    return s;
  }

  fs::path top_;
  std::unique_ptr<DataRoots> roots_;
};

TEST_F(PathsTest, RelativePathsAreLookedUpInTheOrderOfTheRoots) {
  EXPECT_EQ(Ok("one.jsonl"), (top_ / "a/one.jsonl").string());
  EXPECT_EQ(Ok("data/two.jsonl"), (top_ / "b/data/two.jsonl").string());
  EXPECT_EQ(Ok("models/m/", PathKind::kDirectory),
            (top_ / "a/models/m").string());
}

TEST_F(PathsTest, AbsolutePathsUnderARoot) {
  EXPECT_EQ(Ok(top_ / "b/one.jsonl"), (top_ / "b/one.jsonl").string());
  EXPECT_EQ(Ok(top_ / "a", PathKind::kDirectory), (top_ / "a").string());
}

TEST_F(PathsTest, NothingLeadsOut) {
  for (const std::string& path :
       {std::string("../secret/key"), std::string("models/../../secret/key"),
        std::string("way_out/key"), std::string("own_link"),
        std::string("/etc/passwd"), (top_ / "secret/key").string(),
        (top_ / "a/../secret/key").string(), (top_ / "ab").string()}) {
    EXPECT_EQ(ErrorReason(Bad(path)), FieldReason::kPathOutsideDataRoots)
        << path;
  }
}

TEST_F(PathsTest, LinksAreFollowedBeneathTheirRootAndToOtherOnes) {
  fs::create_symlink(top_ / "a/one.jsonl", top_ / "a/models/absolute");
  fs::create_symlink("../../b/data/two.jsonl", top_ / "a/models/other");
  fs::create_symlink(top_ / "hub/x/blob", top_ / "a/models/blob");
  EXPECT_EQ(Ok("link.jsonl"), (top_ / "a/link.jsonl").string());
  // A file keeps the name that says what it is, and is what it leads to.
  for (const auto& [name, real] :
       {std::pair("models/absolute", "a/one.jsonl"),
        std::pair("models/other", "b/data/two.jsonl"),
        std::pair("models/blob", "hub/x/blob")}) {
    const std::string found = Ok(name);
    EXPECT_EQ(found, (top_ / "a" / name).string());
    EXPECT_EQ(roots_->Open(found)->checked().path, (top_ / real).string());
  }
  fs::create_symlink(top_ / "b/data", top_ / "a/models/folder");
  EXPECT_EQ(Ok("models/folder", PathKind::kDirectory),
            (top_ / "b/data").string());
  EXPECT_EQ(Ok("models/folder/two.jsonl"),
            (top_ / "a/models/folder/two.jsonl").string());
}

TEST_F(PathsTest, WhatIsOpenedIsKnownAgain) {
  const auto file = roots_->Open(top_ / "a/link.jsonl");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->checked().root, (top_ / "a").string());
  EXPECT_EQ(file->checked().path, (top_ / "a/link.jsonl").string());
  const auto again = OpenChecked(file->checked());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(roots_->Open(top_ / "own/result").ok());
  EXPECT_TRUE(roots_->Open(top_ / "hub/x/blob").ok());
  EXPECT_TRUE(absl::IsNotFound(roots_->Open(top_ / "a/none").status()));
  for (const std::string& path :
       {(top_ / "a/way_out/key").string(), (top_ / "secret/key").string(),
        (top_ / "a/models").string(), (top_ / "a/own_link").string()}) {
    EXPECT_TRUE(absl::IsInvalidArgument(roots_->Open(path).status())) << path;
  }
  EXPECT_TRUE(roots_->OpenDirectory(top_ / "a/models").ok());
  EXPECT_FALSE(roots_->OpenDirectory(top_ / "a/way_out").ok());
}

TEST_F(PathsTest, ACacheThatComesLaterIsFound) {
  const auto roots =
      *DataRoots::Create({.roots = {top_ / "a"}, .hub_cache = top_ / "later"});
  EXPECT_FALSE(roots->Open(top_ / "later/file").ok());
  fs::create_directory(top_ / "later");
  std::ofstream(top_ / "later/file") << "x";
  EXPECT_TRUE(roots->Open(top_ / "later/file").ok());
}

TEST_F(PathsTest, WhatIsMissingOrOfTheWrongKind) {
  EXPECT_EQ(ErrorReason(Bad("nothing.jsonl")), FieldReason::kPathNotFound);
  EXPECT_EQ(ErrorReason(Bad("one.jsonl/x")), FieldReason::kPathNotFound);
  EXPECT_EQ(ErrorReason(Bad("models")), FieldReason::kInvalidValue);
  EXPECT_EQ(ErrorReason(Bad("one.jsonl", PathKind::kDirectory)),
            FieldReason::kInvalidValue);
}

TEST_F(PathsTest, ARootThatIsNoDirectoryIsNamed) {
  const auto roots = DataRoots::Create({.roots = {top_ / "a/one.jsonl"}});
  EXPECT_TRUE(absl::StrContains(std::string(roots.status().message()),
                                "a/one.jsonl\" is not a directory"))
      << roots.status();
}

}  // namespace
}  // namespace roundhouse
