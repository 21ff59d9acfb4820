// What the tests of a job's parts share: a small job's options, its memory, and
// workers that compute nothing (tests/fakes), without a JobRunner.
#ifndef ROUNDHOUSE_SERVER_TESTING_JOB_PARTS_TEST_FIXTURE_H_
#define ROUNDHOUSE_SERVER_TESTING_JOB_PARTS_TEST_FIXTURE_H_

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/job/job_memory.h"
#include "server/job/runner_options.h"
#include "server/loop/background.h"
#include "server/run/job_events.h"
#include "server/steps/dispatch_loop.h"
#include "server/testing/test_model.h"
#include "server/weights/file_operation.h"
#include "server/workers/files_line.h"
#include "server/workers/process_pool.h"

namespace roundhouse {

// 10 sequences of 3 tokens, 2 of them targets.
inline void WriteTestDataset(const std::string& directory,
                             const std::string& tokens_sha256) {
  std::vector<uint32_t> tokens(30);
  std::vector<uint64_t> offsets;
  for (uint64_t i = 0; i <= 10; ++i) offsets.push_back(3 * i);
  WriteTestFile(directory + "/tokens.u32",
                {reinterpret_cast<char*>(tokens.data()), 120});
  WriteTestFile(directory + "/labels.u8", std::string(30, '\1'));
  WriteTestFile(directory + "/offsets.u64",
                {reinterpret_cast<char*>(offsets.data()), 88});
  WriteTestFile(
      directory + "/manifest.json",
      nlohmann::json{{"format_version", 1},
                     {"sequences", 10},
                     {"tokens", 30},
                     {"target_tokens", 20},
                     {"truncated", 0},
                     {"files", {{"tokens.u32", {{"sha256", tokens_sha256}}}}},
                     {"max_sequence_tokens", 3}}
          .dump());
}

// Remembers what it is told.
class FakeEvents : public JobEvents {
 public:
  void OnRunning(const RunningReport&) override {}
  void OnStep(const StepReport& report) override {
    steps.push_back(report.step);
  }
  void OnEvaluation(int64_t step, double loss) override {
    evaluations.push_back({step, loss});
  }
  void OnSamples(const EvaluationSamples::Found&) override {}
  void OnCheckpoint(const CheckpointReport& report) override {
    checkpoints.push_back(report);
  }
  void OnCheckpointFailed(int64_t step, const absl::Status& status) override {
    failed.push_back(absl::StrCat(step, ": ", status.message()));
  }
  void OnCheckpointsLeft(const std::vector<int64_t>& steps) override {
    left = steps;
  }
  void OnCheckpointCorrupt(const std::string& text) override {
    corrupt.push_back(text);
  }
  void OnNote(const std::string& text) override { notes.push_back(text); }
  void OnWarning(const std::string& text) override { warnings.push_back(text); }
  void OnFinalizing() override {}
  void OnHeld(const HeldReport&) override {}
  void OnFinished(const JobOutcome&) override {}

  std::vector<int64_t> steps;
  std::vector<std::pair<int64_t, double>> evaluations;
  std::vector<CheckpointReport> checkpoints;
  std::vector<int64_t> left;
  std::vector<std::string> failed, corrupt, notes, warnings;
};

class JobPartsTest : public testing::Test, public WorkerPool::Listener {
 protected:
  static constexpr int kDevices = 2;

  JobPartsTest()
      : root_(testing::TempDir() + "/job_parts_test"),
        loop_(*EventLoop::Create()),
        arena_(*HostArena::Create(64 << 20, kDevices + 2)) {
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_ + "/job");
    WriteTestDataset(root_, "a1");
    train_ = *Dataset::Open(root_, 50);
    validation_ = *Dataset::Open(root_, 50);
    pool_options_.worker_program = "tests/fakes/wire_worker";
    pool_options_.device_count = kDevices;
    pool_options_.restart_delay = absl::Milliseconds(1);
  }
  ~JobPartsTest() override { std::filesystem::remove_all(root_); }

  // The first process of a worker behaves so.
  void Misbehave(int worker, const std::string& way) {
    pool_options_.kill_at[static_cast<WorkerId>(worker)] = {way};
  }

  // The job's options, and a pool whose processes Run starts.
  void Prepare(const std::string& fields) {
    const auto spec =
        ParseJobSpec(absl::StrCat("model_name_or_path: m\ndataset: d\n"
                                  "validation_dataset: d\nbatch_size: 4\n"
                                  "micro_batch_size: 2\n",
                                  method_, fields),
                     "job.yaml");
    ASSERT_TRUE(spec.ok()) << spec.status();
    background_.reset();
    operation_.reset();
    memory_.reset();
    files_line_.reset();
    dispatch_.reset();
    pool_ = *ProcessPool::Create(*loop_, *arena_, pool_options_);
    dispatch_ = std::make_unique<DispatchLoop>(
        *loop_, *pool_, PeerGroup::Options{.enabled = false});
    files_line_ = std::make_unique<FilesLine>(*pool_);
    options_ = std::make_unique<RunnerOptions>(
        RunnerOptions{.job = 3,
                      .uid = "uid-3",
                      .directory = root_ + "/job",
                      .output_path = root_ + "/output",
                      .spec = ResolvedSpec::Resolve(*spec, kDevices),
                      .files = &AnyFiles(),
                      .model = {},
                      .files_line = files_line_.get(),
                      .train = train_.get(),
                      .validation = validation_.get(),
                      .device = {1 << 30}});
    options_->model.config = TestModel(false);
    options_->model.config_json = R"({"model_type": "qwen3"})";
    options_->base.id = "m";
    memory_ = std::make_unique<JobMemory>(*arena_, *options_);
    background_ =
        std::make_unique<Background>(*loop_, Background::Thread::kOwn);
    operation_ = std::make_unique<FileOperation>(
        *files_line_, FileOperationOptions{3, 0}, [] {});
  }
  void Allocate() { ASSERT_TRUE(memory_->Allocate(kDevices).ok()); }

  // Runs the loop, with the workers, from `begin` until End.
  void Run(std::function<void()> begin) {
    ASSERT_TRUE(pool_->Start(this).ok());
    loop_->After(absl::ZeroDuration(), std::move(begin));
    loop_->Run();
  }
  void End() {
    loop_->After(absl::ZeroDuration(), [this] {
      pool_->Stop(absl::Minutes(5), [this] { loop_->Quit(); });
    });
  }

  // WorkerPool::Listener
  void OnWorkerUp(WorkerId worker) override {
    if (on_worker_up_) on_worker_up_(worker);
    if (worker == pool_->FilesWorker()) files_line_->OnWorkerUp();
    dispatch_->OnWorkerUp(worker);
  }
  void OnMessage(WorkerId worker, const wire::Message& message) override {
    dispatch_->OnMessage(worker, message);
  }
  void OnWorkerDown(WorkerId worker, const std::string&) override {
    dispatch_->OnWorkerDown(worker);
  }
  void OnDeviceLost(DeviceId device, const std::string&) override {
    dispatch_->OnDeviceLost(device);
  }

  std::string method_ = "model_init: random\n";  // or that of an adapter
  const std::string root_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<HostArena> arena_;
  ProcessPoolOptions pool_options_;
  std::unique_ptr<Dataset> train_, validation_;
  std::unique_ptr<ProcessPool> pool_;
  std::unique_ptr<DispatchLoop> dispatch_;
  std::unique_ptr<FilesLine> files_line_;
  std::unique_ptr<RunnerOptions> options_;
  std::unique_ptr<JobMemory> memory_;
  std::unique_ptr<FileOperation> operation_;
  std::unique_ptr<Background> background_;
  FakeEvents events_;
  std::function<void(WorkerId)> on_worker_up_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_TESTING_JOB_PARTS_TEST_FIXTURE_H_
