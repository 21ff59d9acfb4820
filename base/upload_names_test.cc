#include "base/upload_names.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

TEST(UploadNamesTest, Names) {
  for (const char* good : {"a", "train.jsonl", "Qwen2.5-0.5B", "0", "a_b"}) {
    EXPECT_TRUE(CheckUploadName(good).ok()) << good;
  }
  for (const std::string& bad :
       {std::string(), std::string(".a"), std::string("-a"), std::string("a/b"),
        std::string("a@1"), std::string("a b"), std::string("\xc3\xa4"),
        std::string(kMaxUploadNameBytes + 1, 'a')}) {
    EXPECT_FALSE(CheckUploadName(bad).ok()) << bad;
  }
}

TEST(UploadNamesTest, ANameFromAFiles) {
  EXPECT_EQ(UploadNameFrom("my data.jsonl"), "my-data.jsonl");
  EXPECT_EQ(UploadNameFrom(".hidden"), "hidden");
  EXPECT_EQ(UploadNameFrom("---"), "");
  EXPECT_EQ(UploadNameFrom(std::string(100, 'x')),
            std::string(kMaxUploadNameBytes, 'x'));
}

TEST(UploadNamesTest, WhatLeavesAFolderOrHidesIsNoName) {
  for (const char* good : {"a", "a/b", "a/b/c.jsonl", "\xc3\xa4/x", "a..b"}) {
    EXPECT_TRUE(CheckRelativeName(good).ok()) << good;
  }
  for (const std::string& bad :
       {std::string(), std::string("/a"), std::string("a/"),
        std::string("a//b"), std::string("."), std::string(".."),
        std::string("../a"), std::string("a/../b"), std::string("a/.b"),
        std::string("a\nb"), std::string("a\0b", 3), std::string("a\\b"),
        std::string("\xff"), std::string("1/2/3/4/5/6/7/8/9"),
        std::string(kMaxNamePartBytes + 1, 'a')}) {
    EXPECT_FALSE(CheckRelativeName(bad).ok()) << bad;
  }
}

TEST(UploadNamesTest, NamesThatCannotAllBeThere) {
  EXPECT_TRUE(CheckRelativeNames({"a", "a-b", "b/a", "b/c"}).ok());
  EXPECT_FALSE(CheckRelativeNames({}).ok());
  EXPECT_FALSE(CheckRelativeNames({"a", "a"}).ok());
  // Something sorts between them.
  EXPECT_FALSE(CheckRelativeNames({"a", "a-b", "a/b"}).ok());
  EXPECT_FALSE(CheckRelativeNames({"x/y", "x/y/z/w"}).ok());
  std::vector<std::string> many(kMaxUploadFiles + 1);
  for (size_t i = 0; i < many.size(); ++i) many[i] = std::to_string(i);
  EXPECT_FALSE(CheckRelativeNames(many).ok());
  many.pop_back();
  EXPECT_TRUE(CheckRelativeNames(many).ok());
}

TEST(UploadNamesTest, References) {
  const auto parse = [](const std::string& text) {
    return ParseUploadReference(text);
  };
  EXPECT_FALSE(parse("train.jsonl")->has_value());
  EXPECT_FALSE(parse("job:x")->has_value());
  EXPECT_EQ(**parse("dataset:dates"), (UploadReference{.name = "dates"}));
  const auto whole = parse("model:speech/tiny@12");
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(**whole, (UploadReference{.kind = UploadKind::kModel,
                                      .project = "speech",
                                      .name = "tiny",
                                      .version = 12}));
  EXPECT_EQ(ToText(**whole), "model:speech/tiny@12");
  for (const char* bad :
       {"dataset:", "dataset:/a", "dataset:a/", "dataset:a/b/c", "dataset:..",
        "dataset:../a", "dataset:a@", "dataset:a@0", "dataset:a@01",
        "dataset:a@-1", "dataset:a@x", "model:@1"}) {
    EXPECT_FALSE(parse(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace roundhouse
