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
    const auto found = roots_->Resolve("dataset", path, kind, UsesEveryRoot);
    EXPECT_TRUE(found.ok()) << found.status();
    return found.value_or("");
  }
  absl::Status Bad(const std::string& path, PathKind kind = PathKind::kFile) {
    const absl::Status s =
        roots_->Resolve("dataset", path, kind, UsesEveryRoot).status();
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

// Everybody's folder with one of a project and one of a user in it, each of
// which somebody tries to lead to the other.
class OwnedRootsTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/rh_owned.XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    top_ = fs::canonical(name);
    fs::permissions(top_, fs::perms(0755));
    for (const char* d : {"all/vision", "all/state/jobs", "mary", "own"}) {
      fs::create_directories(top_ / d);
    }
    for (const char* f : {"all/one", "all/vision/two", "mary/three",
                          "all/state/jobs.db", "all/state/jobs/result"}) {
      std::ofstream(top_ / f) << f;
    }
    using Kind = RootOwner::Kind;
    auto roots = DataRoots::Create(
        {.roots = {top_ / "all"},
         .owned = {{{Kind::kProject, "vision"}, top_ / "all/vision"},
                   {{Kind::kUser, "mary"}, top_ / "mary"}},
         .own = {top_ / "all/state/jobs"},
         .closed = top_ / "all/state"});
    ASSERT_TRUE(roots.ok()) << roots.status();
    roots_ = *std::move(roots);
  }
  void TearDown() override { fs::remove_all(top_); }

  bool Finds(const std::string& path, const std::string& owner) {
    return roots_
        ->Resolve("f", path, PathKind::kFile,
                  [&](const RootOwner& root) {
                    return root.name.empty() || root.name == owner;
                  })
        .ok();
  }
  bool Opens(const std::string& path) { return roots_->Open(path).ok(); }

  fs::path top_;
  std::unique_ptr<DataRoots> roots_;
};

TEST_F(OwnedRootsTest, TheInnermostRootSaysWhoseANameIs) {
  const std::string two = top_ / "all/vision/two";
  for (const std::string& name :
       {std::string("two"), two, std::string("vision/two"),
        (top_ / "all/./vision/two").string()}) {
    EXPECT_FALSE(Finds(name, "mary")) << name;
  }
  EXPECT_TRUE(Finds("two", "vision"));
  EXPECT_TRUE(Finds(two, "vision"));
  EXPECT_TRUE(Finds("vision/two", "vision"));
  EXPECT_TRUE(Finds("three", "mary"));
  EXPECT_FALSE(Finds("three", "vision"));
  EXPECT_TRUE(Finds("one", "vision"));
  EXPECT_TRUE(Finds(top_ / "all/vision/../one", "vision"));
}

TEST_F(OwnedRootsTest, WhatIsLedToIsNotTold) {
  fs::create_symlink("../vision", top_ / "all/state/up");
  fs::create_directory(top_ / "all/x");
  for (const char* way :
       {"./vision/", "x/../vision/", "x/../state/", "./state/"}) {
    const auto reason = [&](const std::string& name) {
      return ErrorReason(
          roots_
              ->Resolve("f", way + name, PathKind::kFile,
                        [](const RootOwner& root) { return root.name.empty(); })
              .status());
    };
    EXPECT_EQ(reason("two"), reason("none")) << way;
    EXPECT_EQ(reason("jobs.db"), reason("none")) << way;
  }
  EXPECT_TRUE(Finds("./vision/two", "vision"));
}

// Where the state directory lies in a data root, a link to a result is one.
TEST_F(OwnedRootsTest, ALinkToTheDaemonsOwnIsTakenForIt) {
  const std::string result = top_ / "all/state/jobs/result";
  fs::create_symlink("state/jobs/result", top_ / "all/latest");
  const auto found =
      roots_->Resolve("f", "latest", PathKind::kFile, UsesEveryRoot);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(*found, result);
  EXPECT_FALSE(Opens(top_ / "all/latest"));
}

TEST_F(OwnedRootsTest, ARootThatOthersMayRenameIsRefused) {
  fs::permissions(top_ / "all", fs::perms(0775));
  const DataRootsOptions options = {
      .roots = {top_ / "all"},
      .owned = {{{RootOwner::Kind::kProject, "vision"}, top_ / "all/vision"}}};
  const absl::Status refused = DataRoots::Create(options).status();
  EXPECT_TRUE(absl::StrContains(std::string(refused.message()), "chmod +t"))
      << refused;
  fs::permissions(top_ / "all", fs::perms(01775));
  EXPECT_TRUE(DataRoots::Create(options).ok());
  fs::permissions(top_ / "all", fs::perms(0755));
  EXPECT_TRUE(DataRoots::Create(options).ok());
}

TEST_F(OwnedRootsTest, WhatIsNotHisLooksLikeWhatIsNotThere) {
  const auto told = [&](const std::string& path) {
    const absl::Status status =
        roots_
            ->Resolve("f", path, PathKind::kFile,
                      [](const RootOwner& root) { return root.name.empty(); })
            .status();
    std::string text(status.message());
    return text.erase(text.find(path), path.size());
  };
  EXPECT_EQ(told(top_ / "all/vision/two"), told(top_ / "all/vision/none"));
  EXPECT_EQ(told(top_ / "mary/three"), told("/etc/passwd"));
  EXPECT_EQ(told("vision/two"), told("vision/none"));
  EXPECT_EQ(told("three"), told("none"));
}

// A link that everybody can put somewhere leads nobody else there.
TEST_F(OwnedRootsTest, LinksLeadToWhatEverybodyMayReadOrTheSameOwner) {
  fs::create_symlink(top_ / "all/vision", top_ / "all/link");
  fs::create_symlink(top_ / "mary/three", top_ / "all/three_link");
  fs::create_symlink(top_ / "mary/three", top_ / "all/vision/three");
  fs::create_symlink("vision/two", top_ / "all/two_link");
  fs::create_symlink(top_ / "all/state/jobs.db", top_ / "all/db");
  for (const char* name : {"all/link/two", "all/three_link", "all/vision/three",
                           "all/two_link", "all/db", "all/state/jobs.db"}) {
    const std::string path = top_ / name;
    EXPECT_FALSE(Opens(path)) << name;
    for (const char* owner : {"", "vision", "mary"}) {
      EXPECT_FALSE(Finds(path, owner)) << name << " " << owner;
    }
  }
  fs::create_symlink(top_ / "all/one", top_ / "mary/one");
  fs::create_symlink("three", top_ / "mary/again");
  EXPECT_TRUE(Finds(top_ / "mary/one", "mary"));
  EXPECT_TRUE(Finds(top_ / "mary/again", "mary"));
  EXPECT_TRUE(Opens(top_ / "mary/one"));
}

TEST_F(OwnedRootsTest, TheStateDirectoryIsClosedButForWhatIsNamedInIt) {
  EXPECT_FALSE(Finds("state/jobs.db", "mary"));
  EXPECT_FALSE(Opens(top_ / "all/state/jobs.db"));
  EXPECT_TRUE(Finds("result", "mary"));
  EXPECT_TRUE(Opens(top_ / "all/state/jobs/result"));
  const auto place = roots_->OwnPlaceOf(top_ / "all/state/jobs/result");
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->root, (top_ / "all/state/jobs").string());
  EXPECT_EQ(place->first, "result");
  EXPECT_FALSE(roots_->OwnPlaceOf(top_ / "all/one").has_value());
}

TEST_F(OwnedRootsTest, AFolderHasOneOwner) {
  using Kind = RootOwner::Kind;
  const auto twice = DataRoots::Create(
      {.roots = {top_ / "all"},
       .owned = {{{Kind::kUser, "mary"}, top_ / "all/../all"}}});
  EXPECT_TRUE(
      absl::StrContains(std::string(twice.status().message()), "--user-root: "))
      << twice.status();
}

}  // namespace
}  // namespace roundhouse
