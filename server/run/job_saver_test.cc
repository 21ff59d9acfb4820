#include "server/run/job_saver.h"

#include "absl/strings/match.h"
#include "server/testing/job_parts_test_fixture.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;

class JobSaverTest : public JobPartsTest, public DirectoryWriter::Owner {
 protected:
  void Start(const std::string& fields) {
    Prepare("max_steps: 9\n" + fields);
    Allocate();
    writer_ = std::make_unique<DirectoryWriter>(
        DirectoryWriter::Surroundings{*arena_, *background_, *operation_},
        *this);
    saver_ = std::make_unique<JobSaver>(
        JobSaver::Surroundings{*background_, *writer_, events_}, *options_);
  }
  JobSaver::Snapshot At(int64_t step) {
    return {.state = memory_->state(),
            .step = step,
            .update = step,
            .trainer_state = "{}\n",
            .samples = {"a line"}};
  }
  // Checkpoints of these steps, one after the other, then `then`.
  void SaveAll(std::vector<int64_t> steps, std::function<void()> then) {
    if (steps.empty()) return then();
    const int64_t step = steps.front();
    steps.erase(steps.begin());
    saver_->Save(At(step), {.tokens = 10 * step},
                 [this, steps, then](const absl::Status& status) {
                   EXPECT_TRUE(status.ok()) << status;
                   EXPECT_FALSE(saver_->saving());
                   SaveAll(steps, then);
                 });
    EXPECT_TRUE(saver_->saving());
  }
  bool Holds(const DirectoryPlan&, const absl::Status&) const override {
    return false;
  }
  void OnHeld(const DirectoryPlan&, const absl::Status&, uint64_t) override {}
  void OnUnheld() override {}
  void OnResumed() override {}

  std::unique_ptr<DirectoryWriter> writer_;
  std::unique_ptr<JobSaver> saver_;
};

TEST_F(JobSaverTest, ACheckpointIsReportedAndWhole) {
  Start("");
  EXPECT_EQ(saver_->saved_step(), -1);
  Run([&] { SaveAll({3}, [&] { End(); }); });
  EXPECT_EQ(saver_->saved_step(), 3);
  ASSERT_EQ(events_.checkpoints.size(), 1u);
  const std::string path = root_ + "/job/checkpoint-3";
  EXPECT_EQ(events_.checkpoints[0].path, path);
  EXPECT_GT(events_.checkpoints[0].bytes, 1000u);
  const auto manifest = VerifyCheckpoint(AnyFiles(), path);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->step, 3);
  EXPECT_EQ(manifest->tokens_trained, 30);
  EXPECT_EQ(manifest->dataset_sha256, "a1");
  EXPECT_EQ(ReadTestFile(path + "/samples.jsonl"), "a line\n");
}

TEST_F(JobSaverTest, OldOnesGoButTheBest) {
  Start("save_total_limit: 2");
  Run([&] {
    SaveAll({1, 2, 3, 4}, [&] {
      saver_->RemoveOld(1);
      background_->Run([] { return absl::OkStatus(); },
                       [&](absl::Status) { End(); });
    });
  });
  EXPECT_EQ(ListCheckpointSteps(root_ + "/job"),
            (std::vector<int64_t>{1, 3, 4}));
  EXPECT_EQ(events_.left, (std::vector<int64_t>{1, 3, 4}));
}

TEST_F(JobSaverTest, ACheckpointThatFailsIsTold) {
  Misbehave(kDevices + 1, "broken");
  Start("");
  Run([&] {
    saver_->Save(At(2), {}, [&](const absl::Status& status) {
      EXPECT_FALSE(status.ok());
      EXPECT_FALSE(saver_->saving());
      End();
    });
  });
  ASSERT_EQ(events_.failed.size(), 1u);
  EXPECT_TRUE(absl::StartsWith(events_.failed[0], "2: "));
  EXPECT_EQ(saver_->saved_step(), -1);
}

TEST_F(JobSaverTest, AnOutputThatIsSomebodyElsesStays) {
  Start("");
  fs::create_directories(root_ + "/output");
  WriteTestFile(root_ + "/output/mine", "x");
  const auto write = [&](const std::string& path, auto done) {
    const absl::Status planned =
        saver_->WriteOutput(path, At(3), {"one", "two"}, done);
    EXPECT_TRUE(planned.ok()) << planned;
  };
  Run([&] {
    write(root_ + "/output", [&](const absl::Status& status) {
      EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
      write(root_ + "/other", [&](const absl::Status& second) {
        EXPECT_TRUE(second.ok()) << second;
        End();
      });
    });
  });
  EXPECT_TRUE(fs::exists(root_ + "/output/mine"));
  EXPECT_EQ(ReadTestFile(root_ + "/other/metrics.jsonl"), "one\ntwo\n");
  EXPECT_FALSE(fs::exists(root_ + "/other/optimizer.safetensors"));
}

}  // namespace
}  // namespace roundhouse
