#include "server/weights/base_weights.h"

#include <filesystem>
#include <string>
#include <vector>

#include "base/wire/words.h"
#include "gtest/gtest.h"
#include "server/testing/test_model.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;
using Grant = BaseWeights::Grant;
using Grants = std::vector<Grant>;

class BaseWeightsTest : public testing::Test {
 protected:
  BaseWeightsTest() : arena_(*HostArena::Create(16 << 20, 3)) {}

  uint64_t Version(const BaseWeights& base, int unit) const {
    return arena_->arena()
        .WordAt(base.unit(unit).version_word_offset)
        .value.load();
  }
  std::shared_ptr<BaseWeights> Make() {
    return *BaseWeights::Create(*arena_, model_, DType::kBF16);
  }

  const ModelConfig model_ = TestModel(true);
  std::unique_ptr<HostArena> arena_;
};

TEST_F(BaseWeightsTest, EveryUnitHasItsOwnAlignedBytes) {
  const auto base = Make();
  uint64_t next = 0;
  const auto units = ModelUnits(model_);
  for (size_t u = 0; u < units.size(); ++u) {
    const BaseWeights::Unit& unit = base->unit(static_cast<int>(u));
    EXPECT_EQ(unit.compute_offset % 64, 0u);
    EXPECT_EQ(unit.version_word_offset % 64, 0u);
    EXPECT_GE(unit.version_word_offset, next);
    EXPECT_EQ(unit.compute_offset, unit.version_word_offset + 64);
    next = unit.compute_offset + 2 * units[u].element_count;
  }
  EXPECT_EQ(base->host_bytes(), BaseWeightsBytes(model_, DType::kBF16));
  EXPECT_EQ(next - base->unit(0).version_word_offset, base->host_bytes());
}

TEST_F(BaseWeightsTest, OneLoadsAndTheOthersWait) {
  const auto base = Make();
  Grants first, second, third;
  base->Join([&](Grant grant) { first.push_back(grant); });
  base->Join([&](Grant grant) { second.push_back(grant); });
  EXPECT_EQ(first, Grants{Grant::kLoad});
  EXPECT_TRUE(second.empty());
  EXPECT_EQ(Version(*base, 0), 0u);
  base->LoadDone();
  EXPECT_EQ(second, Grants{Grant::kReady});
  EXPECT_TRUE(base->loaded());
  for (int unit = 0; unit < 5; ++unit) {
    EXPECT_EQ(Version(*base, unit), kBaseVersion);
  }
  base->Join([&](Grant grant) { third.push_back(grant); });
  EXPECT_EQ(third, Grants{Grant::kReady});
  EXPECT_EQ(first.size(), 1u);
}

TEST_F(BaseWeightsTest, AFailedLoadIsTheNextOnesTurn) {
  const auto base = Make();
  Grants second, third;
  base->Join([](Grant) {});
  base->Join([&](Grant grant) { second.push_back(grant); });
  base->Join([&](Grant grant) { third.push_back(grant); });
  base->LoadFailed();
  EXPECT_EQ(second, Grants{Grant::kLoad});
  EXPECT_TRUE(third.empty());
  EXPECT_FALSE(base->loaded());
  EXPECT_EQ(Version(*base, 0), 0u);
  base->LoadDone();
  EXPECT_EQ(third, Grants{Grant::kReady});
}

// Each turn fails at once, within Join and within LoadFailed.
TEST_F(BaseWeightsTest, LoadsThatFailAtOnceEndToo) {
  const auto base = Make();
  Grants turns;
  const auto fail = [&](Grant grant) {
    turns.push_back(grant);
    base->LoadFailed();
  };
  base->Join(fail);
  base->Join([](Grant) {});
  base->Join(fail);
  base->Join(fail);
  EXPECT_EQ(turns.size(), 1u);
  base->LoadFailed();
  EXPECT_EQ(turns, (Grants{Grant::kLoad, Grant::kLoad, Grant::kLoad}));
}

TEST_F(BaseWeightsTest, WhoLeavesGetsNoTurnAndGivesUpItsOwn) {
  const auto base = Make();
  Grants second, third;
  const auto loader = base->Join([](Grant) {});
  const auto waiting =
      base->Join([&](Grant grant) { second.push_back(grant); });
  base->Join([&](Grant grant) { third.push_back(grant); });
  base->Leave(waiting);
  base->Leave(loader);
  EXPECT_TRUE(second.empty());
  EXPECT_EQ(third, Grants{Grant::kLoad});
  base->LoadDone();
  base->Leave(loader);  // long ago: nothing happens
  base->Leave(0);
  EXPECT_TRUE(base->loaded());
}

TEST_F(BaseWeightsTest, TheCacheSharesAndKeepsTheLastBase) {
  BaseCache cache(*arena_);
  const uint64_t empty = arena_->used_bytes();
  auto one = *cache.Get("one", model_, DType::kF32);
  const uint64_t with_one = arena_->used_bytes();
  EXPECT_GT(with_one, empty);
  EXPECT_EQ(*cache.Get("one", model_, DType::kF32), one);
  EXPECT_FALSE(cache.DropUnused()) << "it is in use";
  one->Join([](Grant) {});
  one->LoadDone();
  const BaseWeights* const kept = one.get();
  one.reset();
  EXPECT_EQ(arena_->used_bytes(), with_one) << "kept for the next job";
  one = *cache.Get("one", model_, DType::kF32);
  EXPECT_EQ(one.get(), kept);
  EXPECT_TRUE(one->loaded());
  // Another one beside it while it is in use, in its place when it is not.
  auto two = *cache.Get("two", model_, DType::kF32);
  EXPECT_EQ(cache.count(), 2);
  one.reset();
  two.reset();
  EXPECT_EQ(cache.count(), 2);
  auto three = *cache.Get("three", model_, DType::kF32);
  EXPECT_EQ(cache.count(), 1);
  three.reset();
  EXPECT_TRUE(cache.DropUnused());
  EXPECT_FALSE(cache.DropUnused());
  EXPECT_EQ(arena_->used_bytes(), empty);
}

TEST_F(BaseWeightsTest, AnEmptyOrForgottenBaseIsNotKept) {
  BaseCache cache(*arena_);
  const uint64_t before = arena_->used_bytes();
  auto base = *cache.Get("key", model_, DType::kF32);
  cache.DropEmpty();
  EXPECT_EQ(cache.count(), 1) << "it is in use";
  base.reset();
  cache.DropEmpty();
  EXPECT_EQ(arena_->used_bytes(), before);
  base = *cache.Get("key", model_, DType::kF32);
  cache.Forget(*base);
  EXPECT_NE(*cache.Get("key", model_, DType::kF32), base);
  base.reset();
}

TEST_F(BaseWeightsTest, NoRoomTakesNothing) {
  const auto small = *HostArena::Create(64 << 10, 3);
  BaseCache cache(*small);
  const uint64_t before = small->used_bytes();
  EXPECT_EQ(cache.Get("key", model_, DType::kF32).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(small->used_bytes(), before);
  EXPECT_EQ(cache.count(), 0);
}

class BaseKeyTest : public testing::Test {
 protected:
  BaseKeyTest() : file_(testing::TempDir() + "/base_key_test") {
    WriteTestFile(file_, "weights");
    directory_.config_json = "{}";
    directory_.sources.resize(1);
    directory_.sources[0].push_back(
        {{"", file_, {.size_bytes = 7}}, 0, 4, DType::kF32});
  }
  ~BaseKeyTest() override {
    fs::remove(file_);
    fs::remove(file_ + ".copy");
    fs::remove(file_ + ".link");
  }
  std::string Key(DType dtype = DType::kF32) const {
    const auto key = BaseKey(directory_, dtype);
    EXPECT_TRUE(key.ok()) << key.status();
    return *key;
  }

  const std::string file_;
  ModelDirectory directory_;
};

TEST_F(BaseKeyTest, IsTheSameWhileTheFilesAre) {
  const std::string key = Key();
  EXPECT_EQ(key.size(), 64u);
  EXPECT_EQ(Key(), key);
  fs::create_symlink(file_, file_ + ".link");
  directory_.sources[0][0].file.path = file_ + ".link";
  EXPECT_EQ(Key(), key) << "another path to the same file";
}

TEST_F(BaseKeyTest, ChangesWithEverythingThatIsLoaded) {
  const std::string key = Key();
  EXPECT_NE(Key(DType::kBF16), key);
  directory_.config_json = "{ }";
  EXPECT_NE(Key(), key);
  directory_.config_json = "{}";
  directory_.sources[0][0].offset = 3;
  EXPECT_NE(Key(), key);
  directory_.sources[0][0].offset = 0;
  ASSERT_EQ(Key(), key);
  const auto time = fs::last_write_time(file_);
  WriteTestFile(file_ + ".copy", "w8ights");
  fs::last_write_time(file_ + ".copy", time);
  fs::rename(file_ + ".copy", file_);
  EXPECT_EQ(fs::last_write_time(file_), time);
  EXPECT_NE(Key(), key) << "same name, size and time of change";
  fs::remove(file_);
  EXPECT_EQ(BaseKey(directory_, DType::kF32).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace roundhouse
