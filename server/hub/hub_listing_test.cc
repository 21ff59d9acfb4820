#include "server/hub/hub_listing.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/upload_names.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace roundhouse {
namespace {

using Json = nlohmann::json;

constexpr char kCommit[] = "0123456789abcdef0123456789abcdef01234567";
constexpr char kIndexText[] =
    R"({"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}})";

Json Small(const std::string& name, int64_t size = 2) {
  return {{"rfilename", name},
          {"size", size},
          {"blobId", "9e26dfeeb6e641a33dae4961196235bdb965b21b"}};
}

Json Large(const std::string& name, int64_t size = 100) {
  return {{"rfilename", name},
          {"size", size},
          {"blobId", std::string(40, '0')},
          {"lfs", {{"sha256", std::string(64, 'a')}, {"size", size}}}};
}

std::string Text(const std::vector<Json>& siblings) {
  return Json{{"sha", kCommit}, {"siblings", siblings}}.dump();
}

HubListing Listing(const std::vector<Json>& siblings) {
  const auto listing = ParseListing(Text(siblings));
  EXPECT_TRUE(listing.ok()) << listing.status();
  return *listing;
}

std::vector<std::string> Names(const HubChoice& choice) {
  std::vector<std::string> names;
  for (const HubFile& file : choice.files) names.push_back(file.name);
  return names;
}

using Strings = std::vector<std::string>;

TEST(HubListingTest, ItHasWhatIsNeededOfEachFile) {
  const HubListing listing =
      Listing({Small("config.json"), Large("model.safetensors", 12345)});
  EXPECT_EQ(listing.commit, kCommit);
  ASSERT_EQ(listing.files.size(), 2u);
  EXPECT_EQ(listing.files[0],
            (HubFile{.name = "config.json",
                     .bytes = 2,
                     .git_sha1 = "9e26dfeeb6e641a33dae4961196235bdb965b21b"}));
  EXPECT_EQ(listing.files[1], (HubFile{.name = "model.safetensors",
                                       .bytes = 12345,
                                       .sha256 = std::string(64, 'a')}));
}

TEST(HubListingTest, WhatIsNoListingIsRefusedByName) {
  const auto expect = [](const std::string& json, const std::string& part) {
    const auto listing = ParseListing(json);
    ASSERT_TRUE(absl::IsFailedPrecondition(listing.status())) << json;
    EXPECT_NE(listing.status().message().find(part), std::string::npos)
        << listing.status();
  };
  expect("[]", "is no JSON object");
  expect("{\"sha\": ", "the hub's answer");
  expect("{}", "sha");
  expect(Json{{"sha", "main"}, {"siblings", Json::array()}}.dump(),
         "sha: expected 40 digits of 0-9, a-f, found 'main'");
  expect(Json{{"sha", kCommit}}.dump(), "siblings: expected a list");
  expect(Json{{"sha", kCommit}, {"siblings", 3}}.dump(), "siblings");
  expect(Text({Json("x")}), "siblings: expected objects");
  expect(Text({Json{{"rfilename", 3}}}), "siblings.rfilename");
  expect(Text({Json{{"rfilename", "a"}, {"size", -1}}}), "siblings.size");
  expect(Text({Json{{"rfilename", "a"}, {"size", 2.5}}}), "siblings.size");
  expect(Text({Json{{"rfilename", "a"}, {"size", int64_t{1} << 60}}}),
         "siblings.size");
  expect(Text({Json{{"rfilename", "a"}, {"blobId", "ABC"}}}),
         "siblings.blobId");
  expect(Text({Json{{"rfilename", "a"}, {"lfs", "x"}}}), "siblings.lfs");
  expect(Text({Json{{"rfilename", "a"}, {"lfs", {{"sha256", "x"}}}}}),
         "siblings.lfs.sha256");
  expect(std::string(100, '['), "nested deeper");
  expect(std::string(kMaxListingBytes + 1, ' '), "bytes");
  expect(Text(std::vector<Json>(kMaxHubFiles + 1, Small("a"))),
         "10001 files, at most 10000");
}

// All of these fit the bytes, and would take many times as many when parsed.
TEST(HubListingTest, ValuesAreBoundedBeforeTheyAreParsed) {
  for (const char* value : {"[],", "{},", "0,", "\"\","}) {
    std::string many = "[";
    for (int i = 0; i <= 1'000'000; ++i) many += value;
    many += "0]";
    ASSERT_LE(many.size(), kMaxListingBytes);
    const auto listing =
        ParseListing(absl::StrCat("{\"siblings\": ", many, "}"));
    ASSERT_TRUE(absl::IsFailedPrecondition(listing.status()));
    EXPECT_NE(
        listing.status().message().find("values, at most 1000000 are read"),
        std::string::npos)
        << listing.status();
    const auto choice = ChooseFiles(
        Listing({Small("config.json"), Small("model.safetensors.index.json")}),
        absl::StrCat("{\"x\": ", many, ",", many, "}"));
    ASSERT_TRUE(absl::IsFailedPrecondition(choice.status()));
    EXPECT_NE(choice.status().message().find("model.safetensors.index.json: "),
              std::string::npos);
    EXPECT_NE(choice.status().message().find("values, at most 1049576"),
              std::string::npos)
        << choice.status();
  }
}

TEST(HubListingTest, AModelOfOneFile) {
  const auto choice = ChooseFiles(
      Listing({Small(".gitattributes"), Small("README.md"), Small("LICENSE"),
               Small("config.json"), Small("generation_config.json"),
               Large("model.safetensors"),
               Small("model.safetensors.index.json"),
               Large("model-00001-of-00002.safetensors"),
               Large("consolidated.safetensors"), Large("pytorch_model.bin"),
               Large("tiny.Q4.gguf"), Large("original/model.safetensors"),
               Large("tokenizer.json"), Small("tokenizer_config.json"),
               Small("chat_template.jinja"),
               Small("additional_chat_templates/tool_use.jinja"),
               Small("docs/README.md"), Small("run.py")}),
      "");
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(
      Names(*choice),
      (Strings{
          "LICENSE", "README.md", "additional_chat_templates/tool_use.jinja",
          "chat_template.jinja", "config.json", "generation_config.json",
          "model.safetensors", "tokenizer.json", "tokenizer_config.json"}));
  EXPECT_EQ(choice->left_out.size(), 9u);
  EXPECT_EQ(choice->left_out[0], ".gitattributes");
  EXPECT_EQ(choice->bytes(), 7 * 2u + 2 * 100u);
}

TEST(HubListingTest, ShardsAreThoseThatTheIndexNames) {
  const HubListing listing = Listing(
      {Small("config.json"), Small("model.safetensors.index.json"),
       Large("a.safetensors"), Large("b.safetensors"), Large("c.safetensors")});
  ASSERT_NE(ShardIndex(listing), nullptr);
  EXPECT_EQ(ShardIndex(listing)->name, "model.safetensors.index.json");
  const auto choice = ChooseFiles(listing, kIndexText);
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(Names(*choice),
            (Strings{"a.safetensors", "b.safetensors", "config.json",
                     "model.safetensors.index.json"}));
  EXPECT_EQ(choice->left_out, Strings{"c.safetensors"});
  for (const char* index :
       {"", "{}", R"({"weight_map": {"x": "../a.safetensors"}})",
        R"({"weight_map": {"x": "missing.safetensors"}})"}) {
    EXPECT_TRUE(
        absl::IsFailedPrecondition(ChooseFiles(listing, index).status()))
        << index;
  }
}

TEST(HubListingTest, AnAdapterIsAModel) {
  const auto choice = ChooseFiles(
      Listing({Small("adapter_config.json"), Large("adapter_model.safetensors"),
               Large("optimizer.pt")}),
      "");
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->files.size(), 2u);
}

TEST(HubListingTest, WhatIsNoModelIsRefused) {
  for (const std::vector<Json>& siblings :
       {std::vector<Json>{},
        {Small("config.json")},
        {Large("model.safetensors")},
        {Small("config.json"), Large("pytorch_model.bin")},
        {Small("adapter_config.json"), Large("adapter_model.bin")}}) {
    const auto choice = ChooseFiles(Listing(siblings), "");
    ASSERT_TRUE(absl::IsFailedPrecondition(choice.status()));
    EXPECT_NE(choice.status().message().find("weights in other forms are not"),
              std::string::npos);
  }
}

TEST(HubListingTest, NamesThatAreNoneAreNotTaken) {
  std::vector<Json> siblings = {Small("config.json"),
                                Large("model.safetensors")};
  for (const char* name :
       {"../LICENSE", "/LICENSE", "LICENSE/../x", "license\nx", "README\\x",
        "additional_chat_templates/../x.jinja", ""}) {
    siblings.push_back(Small(name));
  }
  const std::string longest(kMaxRelativeNameBytes, 'x');
  siblings.push_back(Small(longest + "y"));
  const auto choice = ChooseFiles(Listing(siblings), "");
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->files.size(), 2u);
  ASSERT_EQ(choice->left_out.size(), 8u);
  EXPECT_EQ(choice->left_out[7], longest);
}

TEST(HubListingTest, WhatIsTakenHasASizeAndAHash) {
  Json no_hash = Small("config.json");
  no_hash.erase("blobId");
  Json no_size = Small("config.json");
  no_size.erase("size");
  for (const Json& config : {no_hash, no_size}) {
    const auto choice =
        ChooseFiles(Listing({config, Large("model.safetensors")}), "");
    ASSERT_FALSE(choice.ok());
    EXPECT_NE(choice.status().message().find("no size or no hash of "
                                             "'config.json'"),
              std::string::npos)
        << choice.status();
  }
}

TEST(HubListingTest, WhatGoesIntoMemoryIsBounded) {
  const auto choice = ChooseFiles(
      Listing({Small("config.json"), Small("model.safetensors", 65 << 20)}),
      "");
  ASSERT_FALSE(choice.ok());
  EXPECT_NE(choice.status().message().find("no SHA-256 of it"),
            std::string::npos)
      << choice.status();
}

TEST(HubListingTest, AFileIsCheckedAgainstEitherHash) {
  // As `git hash-object` has it.
  HubFile small{.name = "a",
                .bytes = 2,
                .git_sha1 = "9e26dfeeb6e641a33dae4961196235bdb965b21b"};
  EXPECT_TRUE(CheckWhole(small, "{}").ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(CheckWhole(small, "[]")));
  EXPECT_TRUE(absl::IsFailedPrecondition(CheckWhole(small, "{ }")));
  HubFile large{.name = "a",
                .bytes = 3,
                .sha256 =
                    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9c"
                    "b410ff61f20015ad"};
  EXPECT_TRUE(CheckWhole(large, "abc").ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(CheckWhole(large, "abd")));
}

}  // namespace
}  // namespace roundhouse
