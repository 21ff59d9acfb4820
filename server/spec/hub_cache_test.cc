#include "server/spec/hub_cache.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;

constexpr char kRevision[] = "0123456789abcdef0123456789abcdef01234567";

class HubCacheTest : public testing::Test {
 protected:
  HubCacheTest()
      : root_(fs::canonical(testing::TempDir()) / "hub_cache_test"),
        cache_((root_ / "hub").string()),
        model_(root_ / "hub/models--Org--Tiny-1.5B") {
    fs::remove_all(root_);
    Write(model_ / "refs/main", kRevision);
    Write(model_ / "blobs/aa", "{}");
    fs::create_directories(Snapshot());
    fs::create_symlink("../../blobs/aa", Snapshot() / "config.json");
  }
  ~HubCacheTest() override { fs::remove_all(root_); }

  static void Write(const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  fs::path Snapshot() const { return model_ / "snapshots" / kRevision; }

  void ExpectError(const std::string& id, const std::string& text) {
    const absl::Status status =
        cache_.Find("model_name_or_path", HubName{id}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_EQ(ErrorField(status), "model_name_or_path");
    EXPECT_TRUE(absl::StrContains(status.message(), text)) << status;
  }

  const fs::path root_;
  const HubCache cache_;
  const fs::path model_;
};

TEST(HubIdTest, WhatTheHubAllows) {
  for (const char* id : {"Qwen/Qwen3-0.6B", "a/b_c", "0/1"}) {
    EXPECT_TRUE(HubCache::IsId(id)) << id;
  }
  for (const char* id :
       {"", "gpt2", "/", "a/", "/a", "a/b/c", "../a", "a/..", "a/.b", "a--b/c",
        "a b/c", "a/b\n", "-a/b", "a/b@main", "models/a:b"}) {
    EXPECT_FALSE(HubCache::IsId(id)) << id;
  }
  EXPECT_FALSE(HubCache::IsId("a/" + std::string(200, 'b')));
}

TEST_F(HubCacheTest, AnIdIsTheSnapshotOfItsMain) {
  const auto found = cache_.Find("f", HubName{"Org/Tiny-1.5B"});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(*found, Snapshot());
  Write(model_ / "refs/main", std::string(kRevision) + "\n");
  EXPECT_TRUE(cache_.Find("f", HubName{"Org/Tiny-1.5B"}).ok());
}

TEST_F(HubCacheTest, WhatIsMissingIsToldWithTheWayToGetIt) {
  ExpectError("Org/Other",
              "hf download Org/Other --cache-dir " + (root_ / "hub").string());
  ExpectError("Org/Other",
              "lacks it; the server downloads nothing by itself: "
              "roundhouse model pull Org/Other fetches it where there is a "
              "hub, else get it");
  fs::create_directories(root_ / "hub/models--Org--Other");
  ExpectError("Org/Other", "lacks models--Org--Other/refs/main;");
  Write(model_ / "refs/main", "../..");
  ExpectError("Org/Tiny-1.5B", "lacks a commit in ");
  Write(model_ / "refs/main", "feedface");
  ExpectError("Org/Tiny-1.5B", "lacks models--Org--Tiny-1.5B/snapshots/feedf");
  fs::remove_all(root_ / "hub");
  ExpectError("Org/Tiny-1.5B", "lacks it;");
  const absl::Status none = HubCache("").Find("f", HubName{"a/b"}).status();
  EXPECT_TRUE(absl::StrContains(none.message(), "--hf-cache")) << none;
}

TEST_F(HubCacheTest, NoLinkLeadsOut) {
  Write(root_ / "secret", "x");
  fs::create_symlink(root_ / "secret", Snapshot() / "tokenizer.json");
  ExpectError("Org/Tiny-1.5B", "tokenizer.json: leads out of the cache");
  fs::remove(Snapshot() / "tokenizer.json");
  fs::create_symlink("../../blobs/none", Snapshot() / "model.safetensors");
  ExpectError("Org/Tiny-1.5B",
              "model.safetensors (a link to nothing: its "
              "download has not ended); the server downloads nothing by "
              "itself");
  fs::remove(Snapshot() / "model.safetensors");
  // A link in place of a folder is none of the cache's own.
  fs::rename(model_, root_ / "elsewhere");
  fs::create_directory_symlink(root_ / "elsewhere", model_);
  ExpectError("Org/Tiny-1.5B", "lacks it;");
}

TEST_F(HubCacheTest, ARevisionIsACommitOrABranch) {
  const auto name = HubCache::ParseName("Org/Tiny-1.5B@v2");
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->id, "Org/Tiny-1.5B");
  EXPECT_EQ(name->revision, "v2");
  EXPECT_EQ(HubCache::ParseName("Org/Tiny-1.5B")->revision, "");
  for (const char* none : {"a/b@", "a/b@../c", "a@b", "a/b@c/d", "a/b@c@d"}) {
    EXPECT_FALSE(HubCache::ParseName(none).has_value()) << none;
  }
  const absl::Status missing = cache_.Find("f", *name).status();
  EXPECT_TRUE(
      absl::StrContains(missing.message(),
                        "lacks models--Org--Tiny-1.5B/snapshots/v2; the "
                        "server downloads nothing by itself: roundhouse model "
                        "pull Org/Tiny-1.5B@v2 fetches it where there is a "
                        "hub, else get it on the server, as the daemon's "
                        "user: hf download "
                        "Org/Tiny-1.5B --revision v2 --cache-dir "))
      << missing;
  EXPECT_EQ(*cache_.Find("f", HubName{name->id, kRevision}), Snapshot());
  Write(model_ / "refs/v2", kRevision);
  Write(model_ / "refs/main", "feedface");
  EXPECT_EQ(*cache_.Find("f", *name), Snapshot());
}

TEST_F(HubCacheTest, ASnapshotHasItsNameOnTheHub) {
  const auto name = cache_.NameOf(Snapshot());
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->id, "Org/Tiny-1.5B");
  EXPECT_EQ(name->revision, kRevision);
  for (const fs::path& none :
       {model_, Snapshot() / "x", root_ / "models--a--b/snapshots/c"}) {
    EXPECT_FALSE(cache_.NameOf(none.string()).has_value()) << none;
  }
  EXPECT_FALSE(HubCache("").NameOf("/models--a--b/snapshots/c").has_value());
}

TEST_F(HubCacheTest, TheConfigurationAloneIsEnoughForWhoAsksForNoMore) {
  fs::create_symlink("../../blobs/none", Snapshot() / "model.safetensors");
  const HubName name{"Org/Tiny-1.5B"};
  EXPECT_FALSE(cache_.Find("f", name).ok());
  EXPECT_EQ(*cache_.Find("f", name, HubNeed::kConfig), Snapshot());
  fs::remove(Snapshot() / "config.json");
  const absl::Status status = cache_.Find("f", name, HubNeed::kConfig).status();
  EXPECT_TRUE(absl::StrContains(status.message(), "/config.json; the server"))
      << status;
  EXPECT_TRUE(absl::StrContains(
      status.message(), "hf download Org/Tiny-1.5B config.json --cache-dir "))
      << status;
}

TEST_F(HubCacheTest, PathsInTheCacheAreNamedAgain) {
  EXPECT_TRUE(cache_.Contains(Snapshot()));
  EXPECT_FALSE(cache_.Contains(root_ / "hubs/x"));
  EXPECT_FALSE(HubCache("").Contains("/x"));
  const auto found = cache_.Resolve("f", Snapshot());
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(*found, Snapshot());
  EXPECT_FALSE(cache_.Resolve("f", Snapshot() / "gone").ok());
  EXPECT_FALSE(cache_.Resolve("f", Snapshot() / "../../../..").ok());
  // The cache itself may be a link, as its owner likes.
  fs::create_directory_symlink(root_ / "hub", root_ / "link");
  const HubCache link((root_ / "link").string());
  EXPECT_EQ(*link.Find("f", HubName{"Org/Tiny-1.5B"}), Snapshot());
  EXPECT_TRUE(link.Contains(Snapshot()));
  EXPECT_TRUE(link.Contains(root_ / "link/x"));
}

}  // namespace
}  // namespace roundhouse
