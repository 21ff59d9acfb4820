// JobRunner: jobs that train adapters over a base that stays in memory.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/planning/job_needs.h"
#include "server/run/runner_test_fixture.h"

namespace roundhouse {
namespace {

class AdapterRunnerTest : public RunnerTest {
 protected:
  AdapterRunnerTest() {
    fs::create_directories(root_ + "/model");
    WriteTestFile(root_ + "/model/weights", "w");
    method_ = "method: lora\n";
    cache_ = std::make_unique<BaseCache>(*arena_);
    change_options_ = [this](RunnerOptions& options) {
      options.bases = cache_.get();
      AddSources(options.model);
      options.base_key = BaseKey(
          options.model, TrainedOf(options.spec, options.model.config).dtype);
      if (!adapter_.empty()) {
        options.adapter =
            *OpenAdapterDirectory(AnyFiles(), adapter_, options.model.config);
      }
    };
    on_end_ = [this] {
      kept_bytes_ = arena_->used_bytes();
      cache_->DropUnused();
      kept_bytes_ -= arena_->used_bytes();
    };
  }
  ~AdapterRunnerTest() override { runner_.reset(); }

  void AddSources(ModelDirectory& model) const {
    for (const UnitSpec& unit : ModelUnits(model.config)) {
      model.sources.emplace_back();
      for (const ParameterSpec& spec : unit.parameters) {
        model.sources.back().push_back(
            {{"", root_ + "/model/weights", {.size_bytes = 1}},
             0,
             static_cast<uint64_t>(spec.element_count) * 4,
             DType::kF32});
      }
    }
  }
  // Another job of the same daemon: the arena and what is kept in it stay.
  void NextJob() {
    runner_.reset();
    files_line_.reset();
    pool_.reset();
    dispatch_.reset();
    loop_ = *EventLoop::Create();
    finished_ = false;
    steps_.clear();
    notes_.clear();
    warnings_.clear();
    checkpoints_.clear();
    fs::remove_all(root_ + "/job");
    fs::create_directories(root_ + "/job");
  }
  void NewArena(uint64_t bytes) {
    cache_.reset();
    NextLife();
    arena_ = *HostArena::Create(bytes, kDevices + 2);
    cache_ = std::make_unique<BaseCache>(*arena_);
  }
  bool Noted(const std::string& text) const {
    return std::any_of(notes_.begin(), notes_.end(), [&](const auto& note) {
      return absl::StrContains(note, text);
    });
  }
  static uint64_t BaseBytes() {
    return BaseWeightsBytes(TestModel(false), DType::kF32);
  }

  std::unique_ptr<BaseCache> cache_;
  std::string adapter_;
  uint64_t kept_bytes_ = 0;
};

constexpr char kInMemory[] = "the base model is in host memory already";

TEST_F(AdapterRunnerTest, AJobTrainsSavesAndExportsItsAdapters) {
  for (const char* clip : {"0", "1"}) {
    NewArena(64 << 20);
    fs::remove_all(root_ + "/job");
    Run(absl::StrCat("max_steps: 3\nsave_steps: 2\nmax_grad_norm: ", clip));
    EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
    EXPECT_EQ(steps_, (Steps{1, 2, 3}));
    EXPECT_EQ(checkpoints_, (Steps{2, 3}));
    EXPECT_GE(kept_bytes_, BaseBytes());
    const int64_t trained =
        TrainableParameterCount(TestModel(false), DefaultAdapter());
    EXPECT_TRUE(
        Noted(absl::StrCat("trainable parameters: ", trained, " of ",
                           trained + ParameterCount(TestModel(false)))));
    for (const std::string folder : {"/output", "/job/checkpoint-3"}) {
      EXPECT_FALSE(fs::exists(root_ + folder + "/config.json"));
      EXPECT_FALSE(fs::exists(root_ + folder + "/model.safetensors"));
      const auto adapter =
          OpenAdapterDirectory(AnyFiles(), root_ + folder, TestModel(false));
      ASSERT_TRUE(adapter.ok()) << adapter.status();
      EXPECT_EQ(adapter->config, DefaultAdapter());
      EXPECT_EQ(adapter->base_model, root_ + "/model");
    }
    EXPECT_FALSE(fs::exists(root_ + "/output/optimizer.safetensors"));
  }
}

TEST_F(AdapterRunnerTest, TheNextJobFindsTheBaseInMemory) {
  on_end_ = [this] { free_bytes_ = arena_->used_bytes(); };
  Run("max_steps: 1");
  EXPECT_FALSE(Noted(kInMemory));
  EXPECT_EQ(cache_->count(), 1);
  NextJob();
  Run("max_steps: 1");
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  EXPECT_TRUE(Noted(kInMemory));
  // Files that changed are another base.
  NextJob();
  WriteTestFile(root_ + "/model/other", "v");
  fs::rename(root_ + "/model/other", root_ + "/model/weights");
  Run("max_steps: 1");
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  EXPECT_FALSE(Noted(kInMemory));
  EXPECT_EQ(cache_->count(), 1);
}

TEST_F(AdapterRunnerTest, AJobThatNeedsItsBytesDropsTheBase) {
  const auto spec = ParseJobSpec(
      "model_name_or_path: m\ndataset: d\nmodel_init: random\n"
      "batch_size: 4\nmicro_batch_size: 2\n",
      "job.yaml");
  const ResolvedSpec full = ResolvedSpec::Resolve(*spec, kDevices);
  const auto plan = InitialPlan(full, TestModel(false),
                                {kDevices, uint64_t{1} << 30}, {1 << 30});
  const HostNeed need =
      NeedOf(full, TestModel(false), *plan, 3, {1, uint64_t{1} << 30});
  NewArena(need.total() + BaseBytes() / 2);
  on_end_ = [this] { free_bytes_ = arena_->used_bytes(); };
  Run("max_steps: 1");
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  EXPECT_EQ(cache_->count(), 1);
  const uint64_t kept = arena_->used_bytes();
  NextJob();
  method_ = "model_init: random\n";
  on_end_ = [&] {
    EXPECT_EQ(cache_->count(), 0);
    EXPECT_LT(arena_->used_bytes(), kept);
    free_bytes_ = arena_->used_bytes();
  };
  Run("max_steps: 1");
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
}

TEST_F(AdapterRunnerTest, ABaseThatCannotBeLoadedFailsTheJobAndIsNotKept) {
  Misbehave(kDevices + 1, "fail");
  on_end_ = [this] { EXPECT_EQ(cache_->count(), 0); };
  Run("max_steps: 1");
  EXPECT_EQ(outcome_.state, JobState::kFailed);
  EXPECT_FALSE(Noted("going on"));
}

TEST_F(AdapterRunnerTest, AJobWhoseBaseIsGoneFails) {
  fs::remove(root_ + "/model/weights");
  Run("max_steps: 1");
  EXPECT_EQ(outcome_.state, JobState::kFailed);
  EXPECT_EQ(outcome_.reason, JobReason::kInvalidModel) << outcome_.message;
}

TEST_F(AdapterRunnerTest, APausedJobGoesOnFromItsAdapters) {
  on_step_ = [&](int64_t step) {
    if (step != 2) return;
    loop_->After(absl::ZeroDuration(), [this] { runner_->Pause(); });
  };
  Run("max_steps: 6");
  EXPECT_EQ(outcome_.state, JobState::kPaused) << outcome_.message;
  const int64_t at = checkpoints_.back();
  on_step_ = nullptr;
  NewArena(64 << 20);
  Run("max_steps: 6");
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  EXPECT_EQ(steps_.front(), at + 1);
  EXPECT_EQ(steps_.back(), 6);
}

TEST_F(AdapterRunnerTest, ACheckpointOfOtherAdaptersIsRefused) {
  Run("max_steps: 1");
  fs::rename(root_ + "/job", root_ + "/first");
  NewArena(64 << 20);
  fs::create_directories(root_ + "/job");
  Run(absl::StrCat("max_steps: 2\nlora_alpha: 3\nresume_from_checkpoint: ",
                   root_, "/first/checkpoint-1"));
  EXPECT_EQ(outcome_.state, JobState::kFailed);
  EXPECT_EQ(outcome_.reason, JobReason::kCheckpointCorrupt);
  EXPECT_TRUE(
      absl::StrContains(outcome_.message, "lora_alpha: 8 found, 3 expected"))
      << outcome_.message;
}

TEST_F(AdapterRunnerTest, AnotherAdapterIsGoneOnFrom) {
  Run("max_steps: 1");
  adapter_ = root_ + "/adapter";
  fs::rename(root_ + "/output", adapter_);
  for (const char* base : {"elsewhere/model", "another"}) {
    WriteTestFile(adapter_ + "/adapter_config.json",
                  AdapterConfigJson(DefaultAdapter(), base));
    NewArena(64 << 20);
    warnings_.clear();
    fs::remove_all(root_ + "/job");
    Run("max_steps: 1");
    EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
    EXPECT_TRUE(Noted("going on from the adapter " + adapter_));
    const bool same = std::string(base) == "elsewhere/model";
    EXPECT_EQ(warnings_.size(), same ? 0u : 1u);
  }
}

}  // namespace
}  // namespace roundhouse
