#include "server/weights/leftovers.h"

#include <filesystem>
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "server/testing/test_model.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

class LeftoversTest : public testing::Test {
 protected:
  LeftoversTest() : root_(testing::TempDir() + "/leftovers_test") {
    fs::remove_all(root_);
  }
  ~LeftoversTest() override { fs::remove_all(root_); }

  void Write(const std::string& name) {
    const std::string path = root_ + "/" + name;
    fs::create_directories(fs::path(path).parent_path());
    WriteTestFile(path, "x");
  }
  Names In(const std::string& folder) const {
    Names names;
    for (const auto& entry : fs::directory_iterator(root_ + "/" + folder)) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }

  const std::string root_;
};

TEST_F(LeftoversTest, OnlyTheDaemonsOwnNamesGo) {
  for (const char* left : {".tmp-checkpoint-3/model.safetensors",
                           "tmp-checkpoint-12/optimizer", "metrics.jsonl.tmp",
                           ".tmp-tokenizer/x", "data/train/tokens.u32.part"}) {
    Write(std::string("jobs/a1/") + left);
  }
  for (const char* kept :
       {"checkpoint-3/model.safetensors", "checkpoint-2.corrupt/x", "log",
        "tmp-checkpoint-x/y", "tmp-mine/y", ".tmp-mine/y", "metrics.jsonl",
        "data/train/tokens.u32", "data/train/notes", "data/mine/a.part"}) {
    Write(std::string("jobs/a1/") + kept);
  }
  Write("elsewhere/y");
  fs::create_directory_symlink(root_ + "/elsewhere",
                               root_ + "/jobs/a1/tmp-checkpoint-9");
  fs::create_directory_symlink(root_ + "/jobs/a1", root_ + "/jobs/link");
  SweepJobDirectories(root_ + "/jobs");
  EXPECT_EQ(In("jobs/a1"),
            (Names{"checkpoint-3", "checkpoint-2.corrupt", "log",
                   "tmp-checkpoint-x", "tmp-mine", ".tmp-mine", "metrics.jsonl",
                   "data", "tmp-checkpoint-9"}));
  EXPECT_EQ(In("jobs/a1/data/train"), (Names{"tokens.u32", "notes"}));
  EXPECT_EQ(In("jobs/a1/data/mine"), Names{"a.part"});
  EXPECT_EQ(In("elsewhere"), Names{"y"});
  SweepJobDirectory(root_ + "/none");
}

// tmp-b is what an earlier daemon had begun of b; the others may be somebody's.
TEST_F(LeftoversTest, OutputsOfTheirOwnNamesStay) {
  for (const char* name : {"a/x", ".tmp-a/x", "tmp-b/x",
                           "tmp-c/trainer_state.json", "tmp-d/x", "tmp-e/x"}) {
    Write(std::string("outputs/") + name);
  }
  const Names jobs = {"a", "b", "c", "d", "tmp-d"};
  SweepOutputs(root_ + "/outputs",
               [&](const std::string& name) { return jobs.count(name) != 0; });
  EXPECT_EQ(In("outputs"), (Names{"a", "tmp-c", "tmp-d", "tmp-e"}));
}

}  // namespace
}  // namespace roundhouse
