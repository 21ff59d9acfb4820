// The dataset helper's supervision, with shell scripts in its place.
#include "server/dataset/preparer.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/testing/test_model.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;

class PreparerTest : public testing::Test {
 protected:
  PreparerTest() : root_(testing::TempDir() + "/preparer_test") {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~PreparerTest() override { fs::remove_all(root_); }

  // What becomes of a helper that runs `script` for each split, named $SPLIT.
  absl::Status Prepare(const std::string& script, absl::Duration limit) {
    WriteTestFile(root_ + "/helper",
                  "SPLIT=validation; [[ $* == *'--split train'* ]] && "
                  "SPLIT=train\n" +
                      script);
    auto loop = *EventLoop::Create();
    absl::Status result = absl::UnknownError("not called");
    const PreparerOptions options = {
        .program = {.python = "/bin/bash",
                    .script = root_ + "/helper",
                    .silence_limit = limit,
                    .processes = 3},
        .reading = {.tokenizer_directory = "t",
                    .data_files = {"train.jsonl"},
                    .max_length = 8,
                    .truncation = "left",
                    .packing = true,
                    .seed = 5,
                    .template_date = "2026-01-02"},
        .validation_files = {"valid.jsonl"},
        .output_directory = root_ + "/data",
        .cache_directory = "c",
        .progress = [this](bool validation, double share) {
          told_.emplace_back(validation, share);
        }};
    const auto preparer =
        Preparer::Start(*loop, options, [&](absl::Status status) {
          result = std::move(status);
          loop->Quit();
        });
    loop->Run();
    return result;
  }

  const std::string root_;
  std::vector<std::pair<bool, double>> told_;
};

constexpr absl::Duration kShort = absl::Milliseconds(200);
// The time in which a helper must do its work.
constexpr absl::Duration kLong = absl::Seconds(10);

void ExpectSilence(const absl::Status& status, const std::string& file,
                   absl::Duration limit) {
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_TRUE(absl::StrContains(
      std::string(status.message()),
      absl::StrCat(file, ": the dataset helper told no progress for ",
                   absl::FormatDuration(limit))))
      << status;
}

TEST_F(PreparerTest, BothSplitsArePrepared) {
  EXPECT_TRUE(Prepare(absl::StrCat("echo $SPLIT >>", root_, "/splits"),
                      absl::Minutes(5))
                  .ok());
  EXPECT_EQ(ReadTestFile(root_ + "/splits"), "train\nvalidation\n");
}

TEST_F(PreparerTest, TheHelperIsToldEveryOption) {
  ASSERT_TRUE(
      Prepare(absl::StrCat("echo \"$*\" >>", root_, "/words"), absl::Minutes(5))
          .ok());
  const std::string words = ReadTestFile(root_ + "/words");
  for (const char* option :
       {"--tokenizer t ", "--max-length 8 ", "--truncation left ",
        "--packing --seed 5", "--template-date 2026-01-02", "--cache c",
        "--bigram-from", "--processes 3"}) {
    EXPECT_TRUE(absl::StrContains(words, option)) << option << "\n" << words;
  }
}

TEST_F(PreparerTest, ProgressIsPassedOn) {
  ASSERT_TRUE(Prepare("echo '{\"progress\": 1, \"total\": 4}'\n"
                      "echo '{\"progress\": 1}'\n"
                      "echo '{\"progress\": \"a\", \"total\": 4}'\n"
                      "echo '{\"progress\": 8, \"total\": 4}'",
                      absl::Minutes(5))
                  .ok());
  const std::vector<std::pair<bool, double>> each = {
      {false, 0.25}, {false, 0}, {false, 1},
      {true, 0.25},  {true, 0},  {true, 1}};
  EXPECT_EQ(told_, each);
}

TEST_F(PreparerTest, AHelperThatHangsIsKilledAndNamesItsFile) {
  ExpectSilence(Prepare("exec sleep 1000", kShort), "train.jsonl", kShort);
}

TEST_F(PreparerTest, TheSecondSplitIsWatchedToo) {
  const absl::Status status =
      Prepare("[ $SPLIT = train ] && exit 0; exec sleep 1000", kLong);
  ExpectSilence(status, "valid.jsonl", kLong);
}

TEST_F(PreparerTest, OneThatStopsTellingIsKilled) {
  ExpectSilence(Prepare("echo 1; echo 2; exec sleep 1000", kShort),
                "train.jsonl", kShort);
}

TEST_F(PreparerTest, AKilledHelperIsStartedAgain) {
  const std::string lives = root_ + "/lives";
  EXPECT_TRUE(Prepare(absl::StrCat("echo $SPLIT >>", lives, "; [ $(wc -l <",
                                   lives, ") -lt 3 ] && kill -KILL $$; exit 0"),
                      kLong)
                  .ok());
  EXPECT_EQ(ReadTestFile(lives), "train\ntrain\ntrain\nvalidation\n");
}

TEST_F(PreparerTest, OneThatIsKilledAgainAndAgainIsGivenUp) {
  const std::string lives = root_ + "/lives";
  const absl::Status status =
      Prepare(absl::StrCat("echo $SPLIT >>", lives, "; kill -KILL $$"), kLong);
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  EXPECT_TRUE(absl::StrContains(std::string(status.message()), "signal 9"));
  EXPECT_EQ(ReadTestFile(lives), "train\ntrain\ntrain\n");
}

// What the daemon itself ends is not tried again.
TEST_F(PreparerTest, OneThatHungIsNotStartedAgain) {
  const std::string lives = root_ + "/lives";
  WriteTestFile(lives, "");
  ExpectSilence(
      Prepare(absl::StrCat("echo $SPLIT >>", lives, "; exec sleep 1000"),
              kShort),
      "train.jsonl", kShort);
  EXPECT_NE(ReadTestFile(lives), "train\ntrain\ntrain\n");
}

TEST_F(PreparerTest, WithoutDescriptorsItWaitsForSome) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  auto loop = *EventLoop::Create();
  WriteTestFile(root_ + "/helper", "exit 0");
  const int next = dup(0);
  close(next);
  rlimit few = before;
  few.rlim_cur = next + 2;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::optional<absl::Status> result;
  const PreparerOptions options = {.program = {"/bin/bash", root_ + "/helper"},
                                   .output_directory = root_ + "/data"};
  const auto preparer =
      Preparer::Start(*loop, options, [&](const absl::Status& status) {
        result = status;
        loop->Quit();
      });
  loop->After(absl::Milliseconds(10), [&] {
    EXPECT_FALSE(result.has_value());
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  });
  loop->Run();
  EXPECT_TRUE(result->ok()) << *result;
}

// Together they take longer than the limit; each line starts it anew.
TEST_F(PreparerTest, OneThatTellsProgressMayTakeItsTime) {
  const absl::Status status = Prepare(
      "[ $SPLIT = validation ] && exit 0\n"
      "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 1; echo $i; done",
      kLong);
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace roundhouse
