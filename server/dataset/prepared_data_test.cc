// What becomes of prepared data that are damaged, with a shell script in the
// dataset helper's place: it copies what was prepared once.
#include "server/dataset/prepared_data.h"

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files/durable_file.h"
#include "base/files/file_fault.h"
#include "base/files/sealed_json.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/dataset/prepared_split.h"
#include "server/testing/test_model.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()),
          values.size() * sizeof(T)};
}

class PreparedDataTest : public testing::Test {
 protected:
  PreparedDataTest() : root_(testing::TempDir() + "/prepared_data_test") {
    fs::remove_all(root_);
    for (const char* split : {"train", "validation"}) {
      MakeSplit(absl::StrCat(root_, "/good/", split));
      WriteTestFile(absl::StrCat(root_, "/", split), "source");
    }
    fs::copy(root_ + "/good", root_ + "/data", fs::copy_options::recursive);
  }
  ~PreparedDataTest() override {
    EXPECT_TRUE(ArmFileFaults("").ok());
    fs::remove_all(root_);
  }

  static void MakeSplit(const std::string& path) {
    fs::create_directories(path);
    nlohmann::json files;
    const std::vector<std::pair<std::string, std::string>> arrays = {
        {"tokens.u32", Bytes<uint32_t>({1, 2, 3, 4, 5})},
        {"labels.u8", Bytes<uint8_t>({0, 1, 1, 0, 1})},
        {"offsets.u64", Bytes<uint64_t>({0, 3, 5})},
        {"lines.u32", Bytes<uint32_t>({1, 2})}};
    for (const auto& [name, bytes] : arrays) {
      WriteTestFile(absl::StrCat(path, "/", name), bytes);
      files[name] = {{"sha256", Sha256Of(bytes)}, {"bytes", bytes.size()}};
    }
    const nlohmann::json manifest = {
        {"format_version", 2}, {"sequences", 2}, {"tokens", 5},
        {"target_tokens", 3},  {"truncated", 0}, {"max_sequence_tokens", 3},
        {"files", files}};
    WriteTestFile(path + "/manifest.json", SealJson(manifest.dump(1) + "\n"));
  }

  PreparedDataCheck::Result Check(const std::string& script = "") {
    // $OUT is the word behind --out.
    WriteTestFile(root_ + "/helper",
                  absl::StrCat("echo x >>", root_, "/runs\n", script,
                               "\nwhile [ \"$1\" != --out ]; do shift; done\n",
                               "rm -rf \"$2\"; cp -r ", root_,
                               "/good/${2##*/} \"$2\"\n"));
    fs::remove(root_ + "/runs");
    auto loop = *EventLoop::Create();
    std::string told;
    PreparedDataCheck::Result result = {absl::UnknownError("not called"), ""};
    const auto check = PreparedDataCheck::Start(
        *loop,
        {.program = {"/bin/bash", root_ + "/helper", absl::Minutes(5)},
         .reading = {.tokenizer_directory = "t",
                     .data_files = {root_ + "/train"},
                     .max_length = 8},
         .validation_files = {root_ + "/validation"},
         .output_directory = root_ + "/data",
         .cache_directory = ""},
        {.damaged =
             [&](const std::string& damage, std::function<void()> go_on) {
               told = damage;
               if (!tells_) return loop->Quit();
               // Whatever else the loop does first.
               loop->After(absl::Milliseconds(1), [this, go_on] {
                 EXPECT_EQ(Runs(), 0u) << "mended before it was told";
                 go_on();
               });
             },
         .done =
             [&](const PreparedDataCheck::Result& found) {
               result = found;
               loop->Quit();
             }});
    loop->Run();
    if (tells_) {
      EXPECT_EQ(result.damage, told);
    }
    return result;
  }
  size_t Runs() const { return ReadTestFile(root_ + "/runs").size() / 2; }

  const std::string root_;
  bool tells_ = true;  // whoever is told of damage lets it be mended
};

// The job is paused, or the daemon dies, before it could be told.
TEST_F(PreparedDataTest, DamageThatCouldNotBeToldIsThereForTheNextCheck) {
  const std::string file = root_ + "/data/train/labels.u8";
  std::string flipped = ReadTestFile(file);
  flipped[1] ^= 1;
  WriteTestFile(file, flipped);
  tells_ = false;
  Check();
  EXPECT_EQ(ReadTestFile(file), flipped);
  tells_ = true;
  const auto result = Check();
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_TRUE(absl::StrContains(result.damage, file)) << result.damage;
}

TEST_F(PreparedDataTest, WholeDataAreLeftAsTheyAre) {
  const auto result = Check();
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.damage, "");
  EXPECT_EQ(Runs(), 0u);
}

TEST_F(PreparedDataTest, EveryDamageIsNoticedAndMended) {
  for (const char* split : {"train", "validation"}) {
    for (const char* name : {"tokens.u32", "labels.u8", "offsets.u64",
                             "lines.u32", "manifest.json"}) {
      const std::string file = absl::StrCat(root_, "/data/", split, "/", name);
      const std::string good = ReadTestFile(file);
      std::string flipped = good;
      flipped[good.size() / 2] ^= 1;
      for (const std::string& bad :
           {flipped, good.substr(1), good + good[0], std::string()}) {
        WriteTestFile(file, bad);
        const auto result = Check();
        EXPECT_TRUE(result.status.ok()) << result.status;
        EXPECT_TRUE(absl::StrContains(result.damage, file)) << result.damage;
        EXPECT_EQ(ReadTestFile(file), good);
        EXPECT_EQ(Runs(), 2u);  // both splits, in order
      }
      fs::remove(file);
      EXPECT_TRUE(Check().status.ok());
      EXPECT_EQ(ReadTestFile(file), good);
    }
  }
}

TEST_F(PreparedDataTest, AFileThatCannotBeReadIsDamaged) {
  ASSERT_TRUE(ArmFileFaults("prepared.verify:EIO").ok());
  const auto result = Check();
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_TRUE(absl::StrContains(result.damage, "Input/output error"));
}

TEST_F(PreparedDataTest, WithoutASourceTheJobSaysSo) {
  WriteTestFile(root_ + "/data/train/labels.u8", "abcde");
  fs::remove(root_ + "/train");
  auto result = Check();
  EXPECT_TRUE(absl::IsInvalidArgument(result.status)) << result.status;
  const std::string text(result.status.message());
  EXPECT_TRUE(absl::StrContains(text, "labels.u8")) << text;
  EXPECT_TRUE(absl::StrContains(text, root_ + "/train, from which")) << text;
  EXPECT_EQ(Runs(), 0u);

  WriteTestFile(root_ + "/train", "source");
  result = Check("echo '{\"error\": \"malformed\", \"line\": 3}' >&2; exit 3");
  EXPECT_TRUE(absl::IsInvalidArgument(result.status)) << result.status;
  EXPECT_TRUE(absl::StrContains(std::string(result.status.message()),
                                "can't be prepared again: "));
  result = Check(
      "echo '{\"error\": \"e\", \"file\": \"f\", \"errno\": 28}' >&2; "
      "exit 4");
  EXPECT_TRUE(absl::IsResourceExhausted(result.status)) << result.status;
  result = Check(
      "echo '{\"error\": \"e\", \"file\": \"f\", \"errno\": 5}' >&2; "
      "exit 4");
  EXPECT_TRUE(absl::IsDataLoss(result.status)) << result.status;
}

// The data of a job with trained steps, on a disk that fails for a moment.
TEST_F(PreparedDataTest, WhatTheDiskDoesNotGiveMayBeWholeAnotherTime) {
  fs::remove(root_ + "/train");
  for (const char* fault : {"prepared.verify:EIO", "prepared.verify:EIO:1:3"}) {
    ASSERT_TRUE(ArmFileFaults(fault).ok());
    const auto result = Check();
    ASSERT_TRUE(ArmFileFaults("").ok());
    EXPECT_TRUE(absl::IsDataLoss(result.status)) << result.status;
    EXPECT_TRUE(absl::StrContains(result.damage, "Input/output error"));
    EXPECT_TRUE(Check().status.ok());
  }
}

TEST_F(PreparedDataTest, OneThatIsGivenUpCallsNobody) {
  auto loop = *EventLoop::Create();
  auto check = PreparedDataCheck::Start(
      *loop, {.output_directory = root_ + "/data"},
      {.damaged = [](const std::string&, std::function<void()>) { FAIL(); },
       .done = [](const PreparedDataCheck::Result&) { FAIL(); }});
  check.reset();
  loop->After(absl::ZeroDuration(), [&] { loop->Quit(); });
  loop->Run();
}

// As the helper of the version before wrote it: no seal.
TEST_F(PreparedDataTest, AManifestOfTheVersionBeforeIsRead) {
  const std::string file = root_ + "/data/train/manifest.json";
  auto manifest = nlohmann::json::parse(ReadTestFile(file));
  manifest.erase("manifest_sha256");
  WriteTestFile(file, manifest.dump());
  EXPECT_FALSE(VerifyPreparedSplit(root_ + "/data/train").ok());
  manifest["format_version"] = 1;
  WriteTestFile(file, manifest.dump());
  EXPECT_TRUE(VerifyPreparedSplit(root_ + "/data/train").ok());
  EXPECT_EQ(Check().damage, "");
  manifest["sequences"] = 3;
  WriteTestFile(file, manifest.dump());
  const auto result = Check();
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_TRUE(absl::StrContains(result.damage, "offsets.u64")) << result.damage;
}

}  // namespace
}  // namespace roundhouse
