#include "server/weights/tokenizer_copy.h"

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
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
    model_.config_json = "{}";
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
    return KeepTokenizer(model_, root_ + "/job", turn_ends_);
  }

  const std::string root_;
  ModelDirectory model_;
  std::vector<int64_t> turn_ends_;
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

TEST_F(TokenizerCopyTest, ChatTemplatesKeepTheirFolder) {
  const std::string name = "additional_chat_templates/tool_use.jinja";
  fs::create_directories(root_ + "/model/additional_chat_templates");
  WriteTestFile(root_ + "/model/" + name, "text");
  model_.tokenizer_files.push_back(name);
  model_.tokenizer.push_back(
      AnyFiles().Open(root_ + "/model/" + name)->checked());
  const Names names = {name, "merges.txt", "tokenizer.json"};
  EXPECT_EQ(*Keep(), names);
  EXPECT_EQ(*Keep(), names);
  const std::string copied = TokenizerCopy(root_ + "/job") + "/" + name;
  EXPECT_EQ(ReadTestFile(copied), "text");
  WriteTestFile(copied, "texT");
  EXPECT_EQ(*Keep(), names);
  EXPECT_EQ(ReadTestFile(copied), "text");
  const auto given = GiveTokenizerCopy(root_ + "/job", "/m");
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ(given->front().name, "/m/" + name);
}

TEST_F(TokenizerCopyTest, WhatChangedSinceTheModelWasOpenedIsNotCopied) {
  WriteTestFile(root_ + "/model/blob", "others");
  const absl::Status status = Keep().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "blob: changed since"))
      << status;
  EXPECT_FALSE(fs::exists(TokenizerCopy(root_ + "/job")));
}

// Bits of every file; also of the manifest and the configuration.
TEST_F(TokenizerCopyTest, WhatIsDamagedIsCopiedAgain) {
  const Names names = *Keep();
  for (const std::string path :
       {"tokenizer/tokenizer.json", "tokenizer/merges.txt",
        "tokenizer-manifest.json", "model-config.json"}) {
    const std::string file = root_ + "/job/" + path;
    const std::string whole = ReadTestFile(file);
    ASSERT_FALSE(whole.empty());
    // Every bit of a byte is met somewhere.
    for (size_t bit = 0; bit < 8 * whole.size(); bit += 61) {
      std::string damaged = whole;
      damaged[bit / 8] ^= static_cast<char>(1 << bit % 8);
      WriteTestFile(file, damaged);
      ASSERT_EQ(*Keep(), names) << path << " bit " << bit;
      ASSERT_EQ(ReadTestFile(file), whole) << path << " bit " << bit;
    }
    fs::remove(file);
    // Without a manifest the copy is one of an older version.
    if (path == "tokenizer-manifest.json") {
      EXPECT_EQ(*Keep(), names);
      WriteTestFile(file, whole);
      continue;
    }
    EXPECT_EQ(*Keep(), names);
    EXPECT_EQ(ReadTestFile(file), whole);
  }
  EXPECT_FALSE(fs::exists(TemporaryName(TokenizerCopy(root_ + "/job"))));
}

TEST_F(TokenizerCopyTest, AnotherTokenizerTakesNoDamagedOnesPlace) {
  ASSERT_TRUE(Keep().ok());
  WriteTestFile(root_ + "/model/tokenizer.json", "another");
  model_.tokenizer[0] =
      AnyFiles().Open(root_ + "/model/tokenizer.json")->checked();
  EXPECT_TRUE(Keep().ok());
  for (const char* path :
       {"tokenizer/tokenizer.json", "tokenizer-manifest.json"}) {
    const std::string file = root_ + "/job/" + path;
    const std::string whole = ReadTestFile(file);
    WriteTestFile(file, "damaged");
    const absl::Status status = Keep().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "submit the job again"));
    EXPECT_EQ(ReadTestFile(file), "damaged");
    WriteTestFile(file, whole);
  }
}

TEST_F(TokenizerCopyTest, WhatACrashLeftIsMadeAnew) {
  fs::create_directories(TemporaryName(TokenizerCopy(root_ + "/job")));
  EXPECT_EQ(Keep()->size(), 2u);
}

TEST_F(TokenizerCopyTest, EndsOfTurnsAreAddedToWhatEndsAnAnswer) {
  turn_ends_ = {3, 9};
  model_.config_json = R"({"eos_token_id": 1})";
  WriteTestFile(root_ + "/model/generation_config.json",
                R"({"top_p": 0.5, "eos_token_id": [0, 3]})");
  model_.tokenizer_files.push_back("generation_config.json");
  model_.tokenizer.push_back(
      AnyFiles().Open(root_ + "/model/generation_config.json")->checked());
  ASSERT_TRUE(Keep().ok());
  const auto made = nlohmann::json::parse(
      ReadTestFile(TokenizerCopy(root_ + "/job") + "/generation_config.json"));
  EXPECT_EQ(made, nlohmann::json::parse(
                      R"({"top_p": 0.5, "eos_token_id": [0, 3, 9]})"));
  // What is damaged is made again with them.
  WriteTestFile(TokenizerCopy(root_ + "/job") + "/generation_config.json",
                "{}");
  const auto again = Keep();
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(nlohmann::json::parse(ReadTestFile(TokenizerCopy(root_ + "/job") +
                                               "/generation_config.json")),
            made);
}

TEST_F(TokenizerCopyTest, AModelWithoutTheFileGetsOneForEndsOfTurnsOnly) {
  model_.config_json = R"({"eos_token_id": 1})";
  EXPECT_EQ(Keep()->size(), 2);
  fs::remove_all(TokenizerCopy(root_ + "/job"));
  turn_ends_ = {7};
  EXPECT_EQ(*Keep(),
            (Names{"generation_config.json", "merges.txt", "tokenizer.json"}));
  EXPECT_EQ(nlohmann::json::parse(ReadTestFile(TokenizerCopy(root_ + "/job") +
                                               "/generation_config.json")),
            nlohmann::json::parse(R"({"eos_token_id": [1, 7]})"));
}

TEST(WithTurnEndsTest, WhatIsNoObjectStays) {
  for (const char* text : {"5", "[1]", "{\"a\": ", "\xff"}) {
    EXPECT_EQ(WithTurnEnds(text, "{}", {1}), text);
  }
  EXPECT_EQ(nlohmann::json::parse(WithTurnEnds("", "x", {1})),
            nlohmann::json::parse(R"({"eos_token_id": [1]})"));
}

}  // namespace
}  // namespace roundhouse
