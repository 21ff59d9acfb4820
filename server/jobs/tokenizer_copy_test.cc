#include "server/jobs/tokenizer_copy.h"

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "server/testing/test_model.h"
#include "server/weights/checkpoint.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

class TokenizerCopyTest : public testing::Test {
 protected:
  TokenizerCopyTest() : root_(testing::TempDir() + "/tokenizer_copy") {
    fs::remove_all(root_);
    fs::create_directories(root_ + "/model");
    fs::create_directories(root_ + "/job");
    for (const char* name : {"tokenizer.json", "merges.txt"}) {
      WriteTestFile(root_ + "/model/" + name, name);
      model_.tokenizer_files.push_back(name);
      model_.tokenizer.push_back(
          AnyFiles().Open(root_ + "/model/" + name)->checked());
    }
    // Links may lead to a file of another name.
    fs::rename(root_ + "/model/merges.txt", root_ + "/model/blob");
    fs::create_symlink("blob", root_ + "/model/merges.txt");
    model_.tokenizer[1].path = root_ + "/model/blob";
  }
  ~TokenizerCopyTest() override { fs::remove_all(root_); }

  absl::StatusOr<Names> Keep() const {
    return KeepTokenizer(model_, root_ + "/job");
  }

  const std::string root_;
  ModelDirectory model_;
};

TEST_F(TokenizerCopyTest, ItStaysAsItWasWhateverBecomesOfTheModel) {
  const auto made = Keep();
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(*made, (Names{"merges.txt", "tokenizer.json"}));
  fs::remove_all(root_ + "/model");
  EXPECT_EQ(*Keep(), *made);
  EXPECT_EQ(ReadTestFile(TokenizerCopy(root_ + "/job") + "/tokenizer.json"),
            "tokenizer.json");
}

TEST_F(TokenizerCopyTest, WhatChangedSinceTheModelWasOpenedIsNotCopied) {
  WriteTestFile(root_ + "/model/blob", "others");
  const absl::Status status = Keep().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "blob: changed since"))
      << status;
  EXPECT_FALSE(fs::exists(TokenizerCopy(root_ + "/job")));
}

TEST_F(TokenizerCopyTest, WhatACrashLeftIsMadeAnew) {
  fs::create_directories(TemporaryName(TokenizerCopy(root_ + "/job")));
  EXPECT_EQ(Keep()->size(), 2u);
}

}  // namespace
}  // namespace roundhouse
