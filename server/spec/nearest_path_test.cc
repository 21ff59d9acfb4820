#include "server/spec/nearest_path.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;

class NearestPathTest : public testing::Test {
 protected:
  NearestPathTest()
      : root_(fs::canonical(testing::TempDir()) / "nearest_path_test") {
    fs::remove_all(root_);
    for (const char* file : {"one/models/tiny/config.json", "one/train.jsonl",
                             "two/held-out.jsonl", "outside/secret.jsonl"}) {
      fs::create_directories((root_ / file).parent_path());
      std::ofstream(root_ / file) << "{}";
    }
    fs::create_symlink(root_ / "outside/secret.jsonl",
                       root_ / "one/leaving.jsonl");
    roots_ = *DataRoots::Create(
        {.roots = {(root_ / "one").string(), (root_ / "two").string()}});
  }
  ~NearestPathTest() override { fs::remove_all(root_); }

  std::string Nearest(const std::string& path) const {
    return NearestPath(*roots_, path, UsesEveryRoot);
  }

  const fs::path root_;
  std::unique_ptr<DataRoots> roots_;
};

TEST_F(NearestPathTest, TheNameBesideIsTaken) {
  EXPECT_EQ(Nearest("trian.jsonl"), "train.jsonl");
  EXPECT_EQ(Nearest("modles/tiny"), "models/tiny");
  EXPECT_EQ(Nearest("models/tinny"), "models/tiny");
  EXPECT_EQ(Nearest("models/tiny/confg.json"), "models/tiny/config.json");
  EXPECT_EQ(Nearest("held_out.jsonl"), "held-out.jsonl");
  EXPECT_EQ(Nearest((root_ / "one/trian.jsonl").string()),
            (root_ / "one/train.jsonl").string());
}

TEST_F(NearestPathTest, WhereNothingIsAlikeItIsEmpty) {
  for (const char* path :
       {"", "/", "x", "entirely/other", "modles/other", "modles/tinny",
        "models/tiny/a/b", "/nowhere/train.jsonl", "../trian.jsonl"}) {
    EXPECT_EQ(Nearest(path), "") << path;
  }
}

TEST_F(NearestPathTest, WhatLeadsOutIsNotNamed) {
  EXPECT_EQ(Nearest("leavin.jsonl"), "");
  EXPECT_EQ(Nearest((root_ / "outside/secrte.jsonl").string()), "");
}

}  // namespace
}  // namespace roundhouse
