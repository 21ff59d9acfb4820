#include "server/planning/model_catalog.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;
using Paths = std::vector<std::string>;

class ModelCatalogTest : public testing::Test {
 protected:
  ModelCatalogTest() : root_(testing::TempDir() + "/model_catalog_test") {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~ModelCatalogTest() override { fs::remove_all(root_); }

  void Write(const std::string& name, const std::string& text) {
    const fs::path path = fs::path(root_) / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  ModelFolders In(const Paths& roots, const std::string& left_out = "") {
    return FindModelFolders(AnyFiles(), roots, {left_out});
  }
  Paths Found(const std::string& left_out = "") {
    Paths names;
    for (const std::string& path : In({root_}, left_out).paths) {
      names.push_back(path.substr(root_.size()));
    }
    return names;
  }

  const std::string root_;
};

TEST_F(ModelCatalogTest, FoldersOfModelsAndAdapters) {
  Write("b/x/config.json", "{}");
  Write("a/adapter_config.json", "{}");
  Write("a/below/config.json", "{}");
  Write(".cache/config.json", "{}");
  Write("tmp-x/config.json", "{}");
  Write("state/outputs/y/config.json", "{}");
  Write("other/data.jsonl", "{}");
  fs::create_directory_symlink(root_ + "/b", root_ + "/link");
  EXPECT_EQ(Found(root_ + "/state"), (Paths{"/a", "/b/x"}));
  EXPECT_EQ(In({root_ + "/b", root_, "/nowhere"}).paths.size(), 3);
}

// A link to a file that may not be opened looks like a link to nothing.
TEST_F(ModelCatalogTest, AModelsFilesLieInItsRoots) {
  Write("data/m/x", "{}");
  Write("secret/config.json", "{}");
  const auto roots = *DataRoots::Create({.roots = {root_ + "/data"}});
  const auto found = [&] {
    return FindModelFolders(*roots, roots->roots(), {}).paths.size();
  };
  const std::string link = root_ + "/data/m/config.json";
  fs::create_symlink(root_ + "/secret/config.json", link);
  EXPECT_EQ(found(), 0);
  fs::remove(link);
  fs::create_symlink("x", link);
  EXPECT_EQ(found(), 1);
}

TEST_F(ModelCatalogTest, DepthAndCountAreBounded) {
  std::string deep = "d";
  for (int i = 1; i < kMaxModelDepth; ++i) absl::StrAppend(&deep, "/d");
  Write(deep + "/config.json", "{}");
  EXPECT_EQ(Found().size(), 1);
  EXPECT_FALSE(In({root_}).truncated);
  fs::remove(root_ + "/" + deep + "/config.json");
  Write(deep + "/d/config.json", "{}");
  EXPECT_TRUE(Found().empty());
  EXPECT_TRUE(In({root_}).truncated);
  for (size_t i = 0; i <= kMaxListedModels; ++i) {
    Write(absl::StrCat("m", i, "/config.json"), "{}");
  }
  const ModelFolders found = In({root_});
  EXPECT_EQ(found.paths.size(), kMaxListedModels);
  EXPECT_TRUE(found.truncated);
}

}  // namespace
}  // namespace roundhouse
