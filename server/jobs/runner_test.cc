// A job from its load to its end over workers that compute nothing
// (tests/fakes): what the runner decides, not what is computed.
#include "server/jobs/runner.h"

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/jobs/test_model.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;
constexpr int kDevices = 2;

class RunnerTest : public testing::Test,
                   public JobRunner::Listener,
                   public WorkerPool::Listener {
 protected:
  RunnerTest()
      : root_(testing::TempDir() + "/runner_test"),
        loop_(*EventLoop::Create()),
        arena_(*HostArena::Create(64 << 20, kDevices + 2)) {
    fs::remove_all(root_);
    fs::create_directories(root_ + "/job");
    pool_options_.worker_program = "tests/fakes/wire_worker";
    pool_options_.device_count = kDevices;
    pool_options_.restart_delay = absl::Milliseconds(1);
  }
  ~RunnerTest() override {
    runner_.reset();
    fs::remove_all(root_);
  }

  // For another job in the same test: nothing of the last one is left.
  void Fresh() {
    runner_.reset();
    pool_.reset();
    loop_ = *EventLoop::Create();
    arena_ = *HostArena::Create(64 << 20, kDevices + 2);
    finished_ = false;
    steps_.clear();
    checkpoints_.clear();
    fs::remove_all(root_ + "/job");
    fs::create_directories(root_ + "/job");
  }

  void Misbehave(int worker, const std::string& way, int times = 1) {
    pool_options_.kill_at[static_cast<WorkerId>(worker)].assign(times, way);
  }

  // Runs a job of 10 sequences to its end.
  void Run(const std::string& fields) {
    WriteDataset();
    train_ = *Dataset::Open(root_, 50);
    validation_ = *Dataset::Open(root_, 50);
    const auto spec = ParseJobSpec(
        absl::StrCat("model_name_or_path: m\ndataset: d\nmodel_init: random\n"
                     "batch_size: 4\nmicro_batch_size: 2\n",
                     fields),
        "job.yaml");
    ASSERT_TRUE(spec.ok()) << spec.status();
    RunnerOptions options{.job = 3,
                          .directory = root_ + "/job",
                          .output_path = root_ + output_,
                          .spec = ResolvedSpec::Resolve(*spec, kDevices),
                          .model = {},
                          .train = train_.get(),
                          .validation = validation_.get(),
                          .device_memory_bytes = 1 << 30};
    options.model.config = TestModel(false);
    options.model.config_json = R"({"model_type": "qwen3"})";
    pool_ = *WorkerPool::Create(*loop_, *arena_, pool_options_);
    free_bytes_ = arena_->used_bytes();
    runner_ = std::make_unique<JobRunner>(*loop_, *arena_, *pool_,
                                          std::move(options), this);
    ASSERT_TRUE(pool_->Start(this).ok());
    runner_->Start();
    loop_->Run();
    EXPECT_EQ(arena_->used_bytes(), free_bytes_) << "memory was kept";
  }

  // JobRunner::Listener
  void OnRunning(int64_t, int64_t) override {}
  void OnStep(const StepReport& report) override {
    steps_.push_back(report.step);
    if (on_step_) on_step_(report.step);
  }
  void OnEvaluation(int64_t step, double) override {
    evaluations_.push_back(step);
  }
  void OnCheckpoint(int64_t step, const std::string&, uint64_t) override {
    checkpoints_.push_back(step);
  }
  void OnNote(const std::string&) override {}
  void OnFinalizing() override {
    if (on_finalizing_) on_finalizing_();
  }
  void OnSlot(DeviceId, const wire::SlotDone&) override {}
  void OnDispatchLatency(double) override {}
  void OnFinished(const JobOutcome& outcome) override {
    outcome_ = outcome;
    finished_ = true;
    loop_->After(absl::ZeroDuration(), [this] {
      pool_->Stop(absl::Minutes(5), [this] { loop_->Quit(); });
    });
  }

  // WorkerPool::Listener
  void OnWorkerUp(WorkerId worker) override {
    if (!finished_) runner_->OnWorkerUp(worker);
  }
  void OnMessage(WorkerId worker, const wire::Message& message) override {
    if (!finished_) runner_->OnMessage(worker, message);
  }
  void OnWorkerDown(WorkerId worker, const std::string&) override {
    if (!finished_) runner_->OnWorkerDown(worker);
  }
  void OnDeviceLost(DeviceId device, const std::string& why) override {
    if (!finished_) runner_->OnDeviceLost(device, why);
  }

  const std::string root_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<HostArena> arena_;
  WorkerPoolOptions pool_options_;
  std::unique_ptr<WorkerPool> pool_;
  std::unique_ptr<Dataset> train_, validation_;
  std::unique_ptr<JobRunner> runner_;
  std::vector<int64_t> steps_, evaluations_, checkpoints_;
  std::function<void(int64_t)> on_step_;
  std::function<void()> on_finalizing_;
  JobOutcome outcome_;
  bool finished_ = false;
  std::string output_ = "/output";

 private:
  void WriteDataset() {
    std::vector<uint32_t> tokens(30);
    std::vector<uint64_t> offsets;
    for (uint64_t i = 0; i <= 10; ++i) offsets.push_back(3 * i);
    WriteTestFile(root_ + "/tokens.u32",
                  {reinterpret_cast<char*>(tokens.data()), 120});
    WriteTestFile(root_ + "/labels.u8", std::string(30, '\1'));
    WriteTestFile(root_ + "/offsets.u64",
                  {reinterpret_cast<char*>(offsets.data()), 88});
    WriteTestFile(root_ + "/manifest.json",
                  nlohmann::json{{"format_version", 1},
                                 {"sequences", 10},
                                 {"tokens", 30},
                                 {"target_tokens", 20},
                                 {"truncated", 0},
                                 {"max_sequence_tokens", 3}}
                      .dump());
  }

  uint64_t free_bytes_ = 0;
};

using Steps = std::vector<int64_t>;

TEST_F(RunnerTest, AJobEvaluatesStepsSavesAndExports) {
  Run("max_steps: 5");
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  EXPECT_EQ(steps_, (Steps{1, 2, 3, 4, 5}));
  EXPECT_EQ(evaluations_, (Steps{0, 5}));
  EXPECT_EQ(checkpoints_, Steps{5});
  EXPECT_TRUE(fs::exists(root_ + "/output/trainer_state.json"));
}

// A later step's updates wait for the save of an earlier one, also when the
// later one is to be saved too.
TEST_F(RunnerTest, EveryStepIsSavedWhenSavesAreSlowerThanSteps) {
  for (const char* clip : {"0", "1"}) {
    Fresh();
    Misbehave(kDevices + 1, "slow");
    Run(absl::StrCat("max_steps: 6\nsave_steps: 1\nmax_grad_norm: ", clip));
    EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
    EXPECT_EQ(checkpoints_, (Steps{1, 2, 3, 4, 5, 6}));
    for (int64_t step = 1; step <= 6; ++step) {
      const auto state = nlohmann::json::parse(ReadTestFile(
          CheckpointPath(root_ + "/job", step) + "/trainer_state.json"));
      EXPECT_EQ(state["global_step"], step);
      EXPECT_EQ(state["log_history"].back()["step"], step);
    }
  }
}

// The validation set has more micro-batches than a training step.
TEST_F(RunnerTest, EvaluationRoundsFitTheBuffersOfTrainingRounds) {
  Run("max_steps: 1\nmicro_batches_per_round: 64");
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  EXPECT_EQ(evaluations_, (Steps{0, 1}));
}

TEST_F(RunnerTest, ALossThatIsNotFiniteFailsTheJob) {
  for (int device = 0; device < kDevices; ++device) Misbehave(device, "nan");
  Run("max_steps: 5");
  EXPECT_EQ(outcome_.state, JobState::kFailed);
  EXPECT_EQ(outcome_.reason, JobReason::kNonFiniteLoss) << outcome_.message;
}

TEST_F(RunnerTest, DevicesThatFailAtOnceFailTheJobOnce) {
  for (const char* clip : {"0", "1"}) {
    Fresh();
    for (int device = 0; device < kDevices; ++device) Misbehave(device, "fail");
    Run(absl::StrCat("max_steps: 5\nmax_grad_norm: ", clip));
    EXPECT_EQ(outcome_.state, JobState::kFailed);
    EXPECT_EQ(outcome_.reason, JobReason::kDeviceMemory) << outcome_.message;
  }
}

TEST_F(RunnerTest, AHostWorkerThatFailsFailsTheJob) {
  Misbehave(kDevices, "fail");
  Run("max_steps: 5\nmax_grad_norm: 0");
  EXPECT_EQ(outcome_.state, JobState::kFailed);
  EXPECT_EQ(outcome_.reason, JobReason::kInternal) << outcome_.message;
}

TEST_F(RunnerTest, AJobWithoutDevicesFails) {
  for (int device = 0; device < kDevices; ++device) {
    Misbehave(device, "die-at-start", kMaxFruitlessDeaths);
  }
  Run("max_steps: 5");
  EXPECT_EQ(outcome_.state, JobState::kFailed);
  EXPECT_EQ(outcome_.reason, JobReason::kNoHealthyDevice) << outcome_.message;
}

TEST_F(RunnerTest, ALostDeviceLeavesItsWorkToTheOthers) {
  Misbehave(0, "die", kMaxFruitlessDeaths);
  Run("max_steps: 5");
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  EXPECT_EQ(steps_, (Steps{1, 2, 3, 4, 5}));
}

TEST_F(RunnerTest, APauseAtAnyStepSavesWhatItReported) {
  for (const char* clip : {"0", "1"}) {
    for (int64_t at = 1; at <= 5; ++at) {
      Fresh();
      Misbehave(kDevices + 1, "slow");
      on_step_ = [&](int64_t step) {
        if (step != at) return;
        loop_->After(absl::ZeroDuration(), [this] { runner_->Pause(); });
      };
      Run(absl::StrCat("max_steps: 6\nsave_steps: 2\nmax_grad_norm: ", clip));
      EXPECT_EQ(outcome_.state, JobState::kPaused) << outcome_.message;
      ASSERT_FALSE(steps_.empty());
      ASSERT_FALSE(checkpoints_.empty());
      EXPECT_EQ(checkpoints_.back(), steps_.back()) << "paused at " << at;
      EXPECT_GE(checkpoints_.back(), at);
    }
  }
}

TEST_F(RunnerTest, ACancelWhileExportingEndsCancelled) {
  Misbehave(kDevices + 1, "slow");
  on_finalizing_ = [this] {
    loop_->After(absl::ZeroDuration(), [this] { runner_->Cancel(); });
  };
  Run("max_steps: 2");
  EXPECT_EQ(outcome_.state, JobState::kCancelled);
}

TEST_F(RunnerTest, ASaveThatFailsAtOnceDoesNotStopTheJobTwice) {
  // The last checkpoint cannot be made, and neither can the output.
  WriteTestFile(root_ + "/file", "in the way");
  output_ = "/file/output";
  on_step_ = [this](int64_t) {
    fs::remove_all(root_ + "/job");
    WriteTestFile(root_ + "/job", "in the way");
  };
  Run("max_steps: 2");
  EXPECT_TRUE(checkpoints_.empty());
  EXPECT_EQ(outcome_.state, JobState::kFailed) << outcome_.message;
}

}  // namespace
}  // namespace roundhouse
