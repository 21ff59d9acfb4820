#include "server/run/start_point.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files/durable_file.h"
#include "base/files/file_fault.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;

class StartPointTest : public testing::Test {
 protected:
  StartPointTest() : root_(testing::TempDir() + "/start_point_test") {
    fs::remove_all(root_);
  }
  ~StartPointTest() override { fs::remove_all(root_); }

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
    manifest.dataset_sha256 = "d5";
    const std::string state = absl::StrCat("state of ", step);
    manifest.shards.push_back({"a.safetensors", 3, Sha256Of("abc")});
    manifest.shards.push_back(
        {"trainer_state.json", state.size(), Sha256Of(state)});
    Write(path + "/a.safetensors", "abc");
    Write(path + "/trainer_state.json", state);
    Write(path + "/checkpoint.json", ManifestJson(manifest));
    return path;
  }
  StartPoint Choose(const std::vector<std::string>& own,
                    const std::string& named) {
    StartPoint start =
        ChooseStart({.files = &AnyFiles(),
                     .own = own,
                     .named = named,
                     .dataset_sha256 = dataset_sha256_,
                     .parts = [this](const std::string& path, int64_t step)
                         -> absl::StatusOr<std::vector<FilePart>> {
                       EXPECT_EQ(path, CheckpointPath(root_, step));
                       if (path == unfit_) {
                         return absl::DataLossError("a tensor is missing");
                       }
                       return std::vector<FilePart>(1);
                     }});
    for (const std::string& path : start.corrupt) {
      EXPECT_TRUE(fs::exists(path)) << "moved before it could be told";
    }
    for (const std::string& failure : MoveAside(start.corrupt)) {
      start.notes.push_back(failure);
    }
    return start;
  }
  void Corrupt(const std::string& path) { Write(path + "/a.safetensors", "x"); }

  const std::string root_;
  std::string dataset_sha256_ = "d5";
  std::string unfit_;
};

TEST_F(StartPointTest, WithoutAnyTheModelItIs) {
  const StartPoint start = Choose({}, "");
  EXPECT_EQ(start.path, "");
  EXPECT_FALSE(start.own);
  EXPECT_TRUE(start.status.ok());
  EXPECT_TRUE(start.notes.empty());
}

TEST_F(StartPointTest, TheNewestGoodOneOfItsOwnComesFirst) {
  const std::string one = Save(1), two = Save(2), named = Save(9);
  StartPoint start = Choose({two, one}, named);
  EXPECT_EQ(start.path, two);
  EXPECT_EQ(start.manifest.step, 2);
  EXPECT_TRUE(start.own);
  Corrupt(two);
  start = Choose({two, one}, named);
  EXPECT_EQ(start.path, one);
  ASSERT_EQ(start.notes.size(), 1);
  EXPECT_TRUE(absl::StrContains(start.notes[0], two)) << start.notes[0];
  EXPECT_FALSE(fs::exists(two));
  EXPECT_TRUE(fs::exists(two + ".corrupt"));
}

TEST_F(StartPointTest, TheNamedOneWhereItHasNone) {
  const std::string one = Save(1), named = Save(9);
  Corrupt(one);
  StartPoint start = Choose({one}, named);
  EXPECT_EQ(start.path, named);
  EXPECT_EQ(start.manifest.step, 9);
  EXPECT_FALSE(start.own);
  EXPECT_EQ(start.notes.size(), 1);
  Corrupt(named);
  start = Choose({}, named);
  EXPECT_EQ(start.path, "");
  EXPECT_TRUE(absl::IsDataLoss(start.status)) << start.status;
  EXPECT_TRUE(fs::exists(named));  // someone else's
}

// A bit of a manifest of version 1, which has no seal, or a checkpoint of
// another job that somebody moved here.
TEST_F(StartPointTest, AnOwnOneOfOtherDataIsCorrupt) {
  const std::string one = Save(1);
  dataset_sha256_ = "d4";
  const std::string two = Save(2);
  StartPoint start = Choose({two}, one);
  EXPECT_EQ(start.path, one);  // another job's may be of other data
  EXPECT_FALSE(start.own);
  EXPECT_FALSE(fs::exists(two));
  ASSERT_EQ(start.notes.size(), 1);
  EXPECT_TRUE(absl::StrContains(start.notes[0], "SHA-256 d5"))
      << start.notes[0];
}

TEST_F(StartPointTest, AnOwnOneThatDoesNotFitIsCorrupt) {
  const std::string one = Save(1), two = Save(2);
  unfit_ = two;
  StartPoint start = Choose({two, one}, "");
  EXPECT_EQ(start.path, one);
  EXPECT_EQ(start.parts.size(), 1u);
  EXPECT_TRUE(fs::exists(two + ".corrupt"));
  unfit_ = one;
  start = Choose({}, one);
  EXPECT_TRUE(absl::IsDataLoss(start.status)) << start.status;
  EXPECT_TRUE(fs::exists(one));
}

TEST_F(StartPointTest, TextsAreBelievedWhenTheyAreAsSaved) {
  const std::string one = Save(1), two = Save(2);
  EXPECT_EQ(Choose({two, one}, "").trainer_state, "state of 2");
  // Nobody said that these are of the checkpoint.
  Write(two + "/samples.jsonl", "{}");
  Write(two + "/README", "mine");
  EXPECT_EQ(Choose({two, one}, "").samples, "");
  Write(two + "/trainer_state.json", "state of 3");
  const StartPoint start = Choose({two, one}, "");
  EXPECT_EQ(start.path, one);
  EXPECT_EQ(start.trainer_state, "state of 1");
}

TEST_F(StartPointTest, OneThatTheDiskDoesNotGiveStaysAndAnOlderOneCounts) {
  const std::string one = Save(1), two = Save(2);
  ASSERT_TRUE(ArmFileFaults("checkpoint.read:EIO").ok());
  const StartPoint start = Choose({two, one}, "");
  ASSERT_TRUE(ArmFileFaults("").ok());
  EXPECT_EQ(start.path, one);
  EXPECT_TRUE(start.status.ok()) << start.status;
  EXPECT_TRUE(absl::StrContains(start.notes.at(0), "Input/output error"));
  EXPECT_TRUE(fs::exists(two));
  EXPECT_EQ(Choose({two, one}, "").path, two);
}

// All trained steps would be lost for a disk that fails for a moment.
TEST_F(StartPointTest, NothingStartsAnewBesideOnesThatTheDiskDoesNotGive) {
  const std::string one = Save(1), two = Save(2), named = Save(9);
  ASSERT_TRUE(ArmFileFaults("checkpoint.read:EIO:ever").ok());
  const StartPoint start = Choose({two, one}, named);
  const StartPoint of_named = Choose({}, named);
  ASSERT_TRUE(ArmFileFaults("").ok());
  EXPECT_EQ(start.path, "");
  EXPECT_TRUE(absl::IsInternal(start.status)) << start.status;
  EXPECT_TRUE(absl::StrContains(start.status.message(), two)) << start.status;
  EXPECT_EQ(start.notes.size(), 2u);
  EXPECT_TRUE(absl::IsInternal(of_named.status)) << of_named.status;
  EXPECT_EQ(Choose({two, one}, named).path, two);
}

// A member's own checkpoint, named by a job file.
TEST_F(StartPointTest, NoHistoryEndsTheDaemon) {
  // Dumping it again took more stack than there is.
  const std::string deep(500'000, '[');
  EXPECT_TRUE(ParseTrainerState(
                  absl::StrCat("{\"log_history\": [{\"step\": 1, \"x\": ", deep,
                               std::string(deep.size(), ']'), "}]}"),
                  "state")
                  .empty());
  for (const char* other : {"", "{", "[1]", "7", "\xff"}) {
    EXPECT_EQ(ParseTrainerState(other, "state"), nlohmann::json::object())
        << other;
  }
  const auto good = ParseTrainerState(
      R"({"log_history": [{"step": 1, "loss": 2.5}]})", "state");
  EXPECT_EQ(good["log_history"][0]["step"], 1);
}

}  // namespace
}  // namespace roundhouse
