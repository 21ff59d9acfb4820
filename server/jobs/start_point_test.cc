#include "server/jobs/start_point.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "openssl/evp.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;

class StartPointTest : public testing::Test {
 protected:
  StartPointTest() : root_(testing::TempDir() + "/start_point_test") {
    fs::remove_all(root_);
  }
  ~StartPointTest() override { fs::remove_all(root_); }

  static std::string Sha256(const std::string& bytes) {
    unsigned char digest[32];
    EVP_Digest(bytes.data(), bytes.size(), digest, nullptr, EVP_sha256(),
               nullptr);
    std::string text;
    for (unsigned char byte : digest) {
      absl::StrAppend(&text, absl::Hex(byte, absl::kZeroPad2));
    }
    return text;
  }
  void Write(const std::string& path, const std::string& content) {
    std::ofstream(path, std::ios::binary) << content;
  }
  std::string Save(int64_t step) {
    const std::string path = CheckpointPath(root_, step);
    fs::create_directories(path);
    CheckpointManifest manifest;
    manifest.step = step;
    manifest.dtype = "fp32";
    manifest.resolved_spec = "{}";
    manifest.shards.push_back({"a.safetensors", 3, Sha256("abc")});
    Write(path + "/a.safetensors", "abc");
    Write(path + "/checkpoint.json", ManifestJson(manifest));
    return path;
  }
  void Corrupt(const std::string& path) { Write(path + "/a.safetensors", "x"); }

  const std::string root_;
};

TEST_F(StartPointTest, WithoutAnyTheModelItIs) {
  const StartPoint start = ChooseStart({}, "");
  EXPECT_EQ(start.path, "");
  EXPECT_FALSE(start.own);
  EXPECT_TRUE(start.status.ok());
  EXPECT_TRUE(start.notes.empty());
}

TEST_F(StartPointTest, TheNewestGoodOneOfItsOwnComesFirst) {
  const std::string one = Save(1), two = Save(2), named = Save(9);
  StartPoint start = ChooseStart({two, one}, named);
  EXPECT_EQ(start.path, two);
  EXPECT_EQ(start.manifest.step, 2);
  EXPECT_TRUE(start.own);
  Corrupt(two);
  start = ChooseStart({two, one}, named);
  EXPECT_EQ(start.path, one);
  ASSERT_EQ(start.notes.size(), 1);
  EXPECT_TRUE(absl::StrContains(start.notes[0], two)) << start.notes[0];
  EXPECT_FALSE(fs::exists(two));
  EXPECT_TRUE(fs::exists(two + ".corrupt"));
}

TEST_F(StartPointTest, TheNamedOneWhereItHasNone) {
  const std::string one = Save(1), named = Save(9);
  Corrupt(one);
  StartPoint start = ChooseStart({one}, named);
  EXPECT_EQ(start.path, named);
  EXPECT_EQ(start.manifest.step, 9);
  EXPECT_FALSE(start.own);
  EXPECT_EQ(start.notes.size(), 1);
  Corrupt(named);
  start = ChooseStart({}, named);
  EXPECT_EQ(start.path, "");
  EXPECT_TRUE(absl::IsDataLoss(start.status)) << start.status;
  EXPECT_TRUE(fs::exists(named));  // someone else's
}

// A member's own checkpoint, named by a job file.
TEST_F(StartPointTest, NoHistoryEndsTheDaemon) {
  fs::create_directories(root_);
  const std::string path = root_ + "/trainer_state.json";
  EXPECT_TRUE(ReadTrainerState(AnyFiles(), path).empty());
  // Dumping it again took more stack than there is.
  const std::string deep(500'000, '[');
  Write(path, absl::StrCat("{\"log_history\": [{\"step\": 1, \"x\": ", deep,
                           std::string(deep.size(), ']'), "}]}"));
  EXPECT_TRUE(ReadTrainerState(AnyFiles(), path).empty());
  for (const char* other : {"", "{", "[1]", "7", "\xff"}) {
    Write(path, other);
    EXPECT_EQ(ReadTrainerState(AnyFiles(), path), nlohmann::json::object())
        << other;
  }
  // Never read into memory, as large as it says it is.
  Write(path, "{}");
  fs::resize_file(path, uint64_t{8} << 40);
  EXPECT_TRUE(ReadTrainerState(AnyFiles(), path).empty());
  EXPECT_EQ(ReadHistoryText(AnyFiles(), path), "");
  // Nobody ever writes to it.
  fs::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(ReadHistoryText(AnyFiles(), path), "");
  fs::remove(path);
  Write(path, R"({"log_history": [{"step": 1, "loss": 2.5}]})");
  EXPECT_EQ(ReadTrainerState(AnyFiles(), path)["log_history"][0]["step"], 1);
}

}  // namespace
}  // namespace roundhouse
