// What the tests of JobRunner share: a job over workers that compute nothing
// (tests/fakes).
#ifndef ROUNDHOUSE_SERVER_RUN_RUNNER_TEST_FIXTURE_H_
#define ROUNDHOUSE_SERVER_RUN_RUNNER_TEST_FIXTURE_H_

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/run/runner.h"
#include "server/testing/job_parts_test_fixture.h"
#include "server/testing/test_model.h"
#include "server/workers/process_pool.h"

namespace roundhouse {

namespace fs = std::filesystem;
inline constexpr int kDevices = 2;

class RunnerTest : public testing::Test,
                   public JobEvents,
                   public StepTelemetry,
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
    NextLife();
    fs::remove_all(root_ + "/job");
    fs::create_directories(root_ + "/job");
  }
  // The same job in another daemon: its files are there.
  void NextLife() {
    runner_.reset();
    files_line_.reset();
    pool_.reset();
    dispatch_.reset();  // it has timers of the loop
    loop_ = *EventLoop::Create();
    arena_ = *HostArena::Create(64 << 20, kDevices + 2);
    pool_options_.kill_at.clear();
    finished_ = false;
    steps_.clear();
    checkpoints_.clear();
    holds_.clear();
  }

  void Misbehave(int worker, const std::string& way, int times = 1) {
    pool_options_.kill_at[static_cast<WorkerId>(worker)].assign(times, way);
  }

  // Runs a job of 10 sequences to its end.
  void Run(const std::string& fields) {
    WriteTestDataset(root_, tokens_sha256_);
    train_ = *Dataset::Open(root_, 50);
    validation_ = *Dataset::Open(root_, 50);
    const auto spec = ParseJobSpec(
        absl::StrCat("model_name_or_path: m\ndataset: d\n",
                     "validation_dataset: d\n", method_, sizes_, fields),
        "job.yaml");
    ASSERT_TRUE(spec.ok()) << spec.status();
    RunnerOptions options{.job = 3,
                          .directory = root_ + "/job",
                          .output_path = root_ + output_,
                          .spec = ResolvedSpec::Resolve(*spec, kDevices),
                          .files = &AnyFiles(),
                          .model = {},
                          .train = train_.get(),
                          .validation = validation_.get(),
                          .device = {1 << 30}};
    options.model.config = TestModel(false);
    options.model.config_json = R"({"model_type": "qwen3"})";
    options.model.path = root_ + "/model";
    options.base.id = options.model.path;
    if (change_options_) change_options_(options);
    pool_ = *ProcessPool::Create(*loop_, *arena_, pool_options_);
    free_bytes_ = arena_->used_bytes();
    dispatch_ = std::make_unique<DispatchLoop>(
        *loop_, *pool_, PeerGroup::Options{.enabled = pool_options_.peers});
    files_line_ = std::make_unique<FilesLine>(*pool_);
    options.files_line = files_line_.get();
    runner_ = std::make_unique<JobRunner>(
        JobRunner::Surroundings{*loop_, *arena_, *pool_, *dispatch_},
        std::move(options), *this, *this);
    ASSERT_TRUE(pool_->Start(this).ok());
    runner_->Start();
    loop_->Run();
    if (on_end_) on_end_();
    EXPECT_EQ(arena_->used_bytes(), free_bytes_) << "memory was kept";
  }

  void QuitWhenFreed() {
    if (!arena_->frees_later()) return loop_->Quit();
    arena_->OnFreedLater([this] { QuitWhenFreed(); });
  }

  // JobEvents and StepTelemetry
  void OnRunning(const RunningReport& report) override {
    started_at_ = {report.step, report.tokens};
    kept_evaluations_ = report.evaluated_step;
    kept_samples_ = report.samples.size();
  }
  void OnStep(const StepReport& report) override {
    steps_.push_back(report.step);
    if (on_step_) on_step_(report.step);
  }
  void OnEvaluation(int64_t step, double) override {
    evaluations_.push_back(step);
    if (on_evaluation_) on_evaluation_(step);
  }
  void OnSamples(const EvaluationSamples::Found& found) override {
    samples_.push_back(found.samples.at(0).step);
    found_lines_.insert(found_lines_.end(), found.lines.begin(),
                        found.lines.end());
  }
  void OnCheckpoint(const CheckpointReport& report) override {
    checkpoints_.push_back(report.step);
    EXPECT_TRUE(fs::exists(report.path + "/checkpoint.json"));
    EXPECT_GT(report.bytes, 0u);
    EXPECT_GT(report.seconds, 0);
  }
  void OnCheckpointFailed(int64_t step, const absl::Status& status) override {
    EXPECT_FALSE(status.ok());
    failed_checkpoints_.push_back(step);
  }
  void OnCheckpointsLeft(const std::vector<int64_t>&) override {}
  void OnCheckpointCorrupt(const std::string& text) override {
    corrupt_checkpoints_.push_back(text);
  }
  void OnNote(const std::string& text) override {
    notes_.push_back(text);
    if (on_note_) on_note_(text);
  }
  void OnWarning(const std::string& text) override {
    warnings_.push_back(text);
  }
  void OnFinalizing() override {
    if (on_finalizing_) on_finalizing_();
  }
  void OnHeld(const HeldReport& report) override {
    holds_.push_back(report);
    if (on_held_) on_held_();
  }
  void OnSlotSent(uint64_t attempt, const RunSlotAction& slot,
                  int64_t step) override {
    EXPECT_NE(attempt, 0u);
    // An evaluation is of the step before it, which may be none.
    const bool trains =
        slot.kind == SlotKind::kFused || slot.kind == SlotKind::kBackward;
    EXPECT_GE(step, trains ? 1 : 0);
    ++sent_[slot.kind];
  }
  void OnSlot(DeviceId, SlotKind kind, const wire::SlotDone&) override {
    EXPECT_LE(++slots_[kind], sent_[kind]);
  }
  void OnSlotReplayed(DeviceId device) override {
    replayed_.push_back(Number(device));
  }
  void OnSlotFailed(DeviceId) override { ++failed_slots_; }
  void OnSlotCommand(wire::RunSlot& command) override {
    ++commands_[command.kind];
  }
  void OnHostOp(const HostOpTimes& work) override {
    EXPECT_GE(work.ended_ns, work.started_ns);
    ++host_ops_[{work.kind, work.step}];
  }
  void OnStepDone(int64_t step) override { done_steps_.push_back(step); }
  void OnDispatchLatency(double) override {}
  void OnUrgentBegins(double) override {}
  void OnSumExchanges(int64_t, int64_t) override {}
  void OnUnitUpdated(double seconds) override {
    unit_seconds_.push_back(seconds);
  }
  void OnRecovered(DeviceId device, double seconds) override {
    EXPECT_GT(seconds, 0);
    recovered_.push_back(Number(device));
  }
  void OnFinished(const JobOutcome& outcome) override {
    outcome_ = outcome;
    finished_ = true;
    loop_->After(absl::ZeroDuration(), [this] {
      pool_->Stop(absl::Minutes(5), [this] { QuitWhenFreed(); });
    });
  }

  // WorkerPool::Listener
  void OnWorkerUp(WorkerId worker) override {
    if (!finished_) runner_->OnWorkerUp(worker);
    if (worker == pool_->FilesWorker()) files_line_->OnWorkerUp();
    dispatch_->OnWorkerUp(worker);
  }
  void OnMessage(WorkerId worker, const wire::Message& message) override {
    dispatch_->OnMessage(worker, message);
  }
  void OnWorkerDown(WorkerId worker, const std::string&) override {
    dispatch_->OnWorkerDown(worker);
  }
  void OnDeviceLost(DeviceId device, const std::string& why) override {
    if (!finished_) runner_->OnDeviceLost(device, why);
    dispatch_->OnDeviceLost(device);
  }

  const std::string root_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<HostArena> arena_;
  ProcessPoolOptions pool_options_;
  std::unique_ptr<ProcessPool> pool_;
  std::unique_ptr<Dataset> train_, validation_;
  std::unique_ptr<DispatchLoop> dispatch_;
  std::unique_ptr<FilesLine> files_line_;
  std::unique_ptr<JobRunner> runner_;
  std::vector<int64_t> steps_, evaluations_, checkpoints_, failed_checkpoints_;
  std::vector<std::string> corrupt_checkpoints_;
  std::pair<int64_t, int64_t> started_at_;  // step, tokens
  int64_t kept_evaluations_ = 0;
  std::vector<int64_t> samples_;  // their steps
  size_t kept_samples_ = 0;       // lines
  std::vector<std::string> found_lines_;
  std::vector<std::string> warnings_;
  std::map<SlotKind, int> sent_, slots_;
  std::vector<int> replayed_, recovered_;  // devices
  int failed_slots_ = 0;
  std::vector<double> unit_seconds_;
  std::map<SlotKind, int> commands_;
  std::map<std::pair<HostOpKind, int64_t>, int> host_ops_;
  std::vector<int64_t> done_steps_;
  std::function<void(const std::string&)> on_note_;
  std::function<void(int64_t)> on_step_;
  std::function<void(int64_t)> on_evaluation_;
  std::function<void()> on_finalizing_;
  std::vector<HeldReport> holds_;
  std::function<void()> on_held_;
  JobOutcome outcome_;
  bool finished_ = false;
  std::string output_ = "/output";
  std::string sizes_ = "batch_size: 4\nmicro_batch_size: 2\n";
  std::string method_ = "model_init: random\n";
  std::function<void(RunnerOptions&)> change_options_;
  std::function<void()> on_end_;
  std::vector<std::string> notes_;
  std::string tokens_sha256_ = "a1";

  uint64_t free_bytes_ = 0;
};

using Steps = std::vector<int64_t>;

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_RUN_RUNNER_TEST_FIXTURE_H_
