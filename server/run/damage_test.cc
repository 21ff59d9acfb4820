// Seeded damage to every file of a job's checkpoints and of its prepared data:
// each is noticed, the newest good checkpoint is used, and what is loaded of it
// is what was saved, byte for byte.
//
// ROUNDHOUSE_DAMAGES says how many (tests/long has the full count),
// ROUNDHOUSE_DAMAGE_SEED which.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/run/start_point.h"
#include "server/weights/checkpoint_test_fixture.h"

namespace roundhouse {
namespace {

int64_t Setting(const char* name, int64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}

constexpr int kCheckpoints = 3;  // of steps 1, 2, 3
enum Damage { kFlip, kTruncate, kRemove, kExtend, kZeroes, kOlder, kDamages };

class DamageTest : public CheckpointTest {
 protected:
  DamageTest()
      : good_(root_ + "/good"),
        job_(root_ + "/job"),
        random_(static_cast<uint64_t>(Setting("ROUNDHOUSE_DAMAGE_SEED", 1))) {}

  // What each file's damages were: all kinds come to all files.
  void Save(int64_t step) {
    Scribble(static_cast<uint64_t>(step));
    tokens_ = static_cast<double>(100 * step);
    texts_ = {{"config.json", absl::StrCat("{\"model_type\": ", step, "}")},
              {"trainer_state.json", absl::StrCat("{\"step\": ", step, "}")},
              {"samples.jsonl", absl::StrCat("{\"of\": ", step, "}\n")},
              {"tokenizer.json", absl::StrCat("{\"version\": ", step, "}")}};
    ASSERT_TRUE(CheckpointTest::Save(CheckpointPath(good_, step), step).ok());
    states_[step] = State();
  }
  static std::vector<std::string> FilesOf(const std::string& folder) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  // Whether the file is another one now.
  bool DoDamage(int64_t step, const std::string& name, int kind) {
    const std::string path = CheckpointPath(job_, step) + "/" + name;
    const std::string good = ReadTestFile(path);
    std::string bad = good;
    const size_t at = random_() % good.size();
    switch (kind) {
      case kFlip:
        bad[at] = static_cast<char>(bad[at] ^ (1 << random_() % 8));
        break;
      case kTruncate:
        bad.resize(at);
        break;
      case kRemove:
        return fs::remove(path);
      case kExtend:
        bad += good[at];
        break;
      case kZeroes:  // a page that did not reach the disk
        std::fill(bad.begin() + at,
                  bad.begin() + std::min(at + 4096, bad.size()), '\0');
        break;
      default:  // the file of an older checkpoint
        bad = ReadTestFile(CheckpointPath(good_, step == 1 ? 2 : step - 1) +
                           "/" + name);
    }
    WriteTestFile(path, bad);
    return bad != good;
  }
  StartPoint Choose() {
    StartOptions options;
    options.files = &AnyFiles();
    for (int64_t step = kCheckpoints; step > 0; --step) {
      options.own.push_back(CheckpointPath(job_, step));
    }
    options.dataset_sha256 = "d5";
    options.parts = [this](const std::string& path, int64_t step) {
      return ResumeParts(AnyFiles(), path, step, *state_);
    };
    return ChooseStart(options);
  }
  void CheckUsed(int64_t step, size_t damaged) {
    Scribble(99);
    const StartPoint start = Choose();
    ASSERT_EQ(start.notes.size(), damaged);
    ASSERT_TRUE(MoveAside(start.corrupt).empty());
    ASSERT_EQ(start.path, step == 0 ? "" : CheckpointPath(job_, step));
    for (int64_t worse = step + 1; worse <= kCheckpoints; ++worse) {
      ASSERT_FALSE(fs::exists(CheckpointPath(job_, worse)));
      ASSERT_TRUE(fs::exists(CheckpointPath(job_, worse) + ".corrupt"));
    }
    if (step == 0) return;
    ReadShards(arena_->arena(), start.parts);
    ASSERT_TRUE(State() == states_[step]);
    ASSERT_EQ(start.manifest.step, step);
    ASSERT_EQ(start.manifest.tokens_trained, 100 * step);
    ASSERT_EQ(start.trainer_state, absl::StrCat("{\"step\": ", step, "}"));
    ASSERT_EQ(start.samples, absl::StrCat("{\"of\": ", step, "}\n"));
  }

  const std::string good_;
  const std::string job_;
  std::mt19937_64 random_;
  std::map<int64_t, std::string> states_;
};

TEST_F(DamageTest, TheNewestGoodCheckpointIsUsedWithItsWeights) {
  for (int64_t step = 1; step <= kCheckpoints; ++step) Save(step);
  const std::vector<std::string> files = FilesOf(CheckpointPath(good_, 1));
  ASSERT_EQ(files.size(), 7u);
  const int64_t count = Setting("ROUNDHOUSE_DAMAGES", 84);
  std::set<std::pair<std::string, int>> done;
  for (int64_t i = 0; i < count; ++i) {
    fs::remove_all(job_);
    fs::copy(good_, job_, fs::copy_options::recursive);
    // Every file and every kind in turn, of the newest and of some behind it.
    const int64_t last_good =
        kCheckpoints - 1 - static_cast<int64_t>(random_() % kCheckpoints);
    size_t damaged = 0;
    for (int64_t step = kCheckpoints; step > last_good; --step) {
      const std::string& file = files[(i + step) % files.size()];
      const int kind = static_cast<int>((i / files.size() + step) % kDamages);
      if (DoDamage(step, file, kind)) {
        ++damaged;
        done.emplace(file, kind);
      } else {
        break;  // as it was: a truncation to nothing less
      }
    }
    SCOPED_TRACE(absl::StrCat("damage ", i, ", last good ", last_good));
    CheckUsed(kCheckpoints - static_cast<int64_t>(damaged), damaged);
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(done.size(), files.size() * kDamages) << "not all kinds were tried";
  RecordProperty("damages", static_cast<int>(count));
}

}  // namespace
}  // namespace roundhouse
