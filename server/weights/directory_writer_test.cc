#include "server/weights/directory_writer.h"

#include <signal.h>

#include "base/status.h"
#include "server/testing/job_parts_test_fixture.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;

class DirectoryWriterTest : public JobPartsTest, public DirectoryWriter::Owner {
 protected:
  void Start() {
    Prepare("max_steps: 1");
    Allocate();
    writer_ = std::make_unique<DirectoryWriter>(
        DirectoryWriter::Surroundings{*arena_, *background_, *operation_},
        *this);
  }
  DirectoryPlan Plan() {
    DirectoryPlan plan;
    plan.final_path = root_ + "/job/checkpoint-4";
    plan.add_parts = [saved = SavedStateOf(memory_->state(), 0)](
                         DirectoryPlan& whole) -> absl::Status {
      ASSIGN_OR_RETURN(WeightFiles files,
                       TrainedFiles(saved, TemporaryName(whole.final_path)));
      whole.parts = std::move(files.parts);
      whole.total_bytes = files.total_bytes;
      return absl::OkStatus();
    };
    plan.texts["config.json"] = "{}";
    plan.manifest.emplace();
    plan.manifest->step = 4;
    plan.manifest->dtype = "fp32";
    return plan;
  }
  void Write(std::function<void(const absl::Status&)> done) {
    writer_->Write(Plan(),
                   [this, done = std::move(done)](const absl::Status& status) {
                     seen_.push_back("done");
                     done(status);
                   });
  }
  // DirectoryWriter::Owner
  bool Holds(const DirectoryPlan& plan, const absl::Status&) const override {
    EXPECT_TRUE(plan.manifest.has_value());
    return holds_;
  }
  void OnHeld(const DirectoryPlan& plan, const absl::Status& status,
              uint64_t need_bytes) override {
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_GT(need_bytes, plan.total_bytes);
    EXPECT_TRUE(writer_->waiting());
    seen_.push_back("held");
    if (on_held_) loop_->After(absl::ZeroDuration(), on_held_);
  }
  void OnUnheld() override {
    EXPECT_FALSE(writer_->held());
    seen_.push_back("unheld");
  }
  void OnResumed() override { seen_.push_back("resumed"); }

  std::unique_ptr<DirectoryWriter> writer_;
  bool holds_ = false;
  std::function<void()> on_held_;
  std::vector<std::string> seen_;
};

TEST_F(DirectoryWriterTest, ACheckpointHasWhatTheFilesWorkerSays) {
  Start();
  Run([&] {
    Write([&](const absl::Status& status) {
      EXPECT_TRUE(status.ok()) << status;
      End();
    });
  });
  const auto manifest =
      VerifyCheckpoint(AnyFiles(), root_ + "/job/checkpoint-4");
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->step, 4);
  EXPECT_NE(manifest->Find("model.safetensors"), nullptr);
  EXPECT_NE(manifest->Find("config.json"), nullptr);
  EXPECT_EQ(seen_, std::vector<std::string>{"done"});
}

TEST_F(DirectoryWriterTest, WhatNobodyHoldsIsOverAndLeavesNothing) {
  Misbehave(kDevices + 1, "full");
  Start();
  Run([&] {
    Write([&](const absl::Status& status) {
      EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
      End();
    });
  });
  EXPECT_TRUE(fs::is_empty(root_ + "/job"));
  EXPECT_FALSE(writer_->held());
}

TEST_F(DirectoryWriterTest, WhatIsHeldIsWrittenAgain) {
  Misbehave(kDevices + 1, "full");
  holds_ = true;
  int tries = 0;
  on_held_ = [&] {
    if (++tries == 2) {  // the next process finds room
      ASSERT_EQ(kill(pool_->info(pool_->FilesWorker()).pid, SIGKILL), 0);
    }
    writer_->TryAgain();
    EXPECT_TRUE(writer_->held());
    EXPECT_FALSE(writer_->waiting());
  };
  Start();
  Run([&] {
    Write([&](const absl::Status& status) {
      EXPECT_TRUE(status.ok()) << status;
      End();
    });
  });
  EXPECT_EQ(seen_, (std::vector<std::string>{"held", "held", "unheld", "done",
                                             "resumed"}));
  EXPECT_TRUE(VerifyCheckpoint(AnyFiles(), root_ + "/job/checkpoint-4").ok());
}

TEST_F(DirectoryWriterTest, WhatIsGivenUpIsCancelled) {
  Misbehave(kDevices + 1, "full");
  holds_ = true;
  on_held_ = [&] { writer_->GiveUp(); };
  Start();
  writer_->GiveUp();  // nothing is held
  Run([&] {
    Write([&](const absl::Status& status) {
      EXPECT_TRUE(absl::IsCancelled(status)) << status;
      End();
    });
  });
  EXPECT_EQ(seen_, (std::vector<std::string>{"held", "done"}));
  EXPECT_TRUE(fs::is_empty(root_ + "/job"));
}

using DirectoryWriterDeathTest = DirectoryWriterTest;

TEST_F(DirectoryWriterDeathTest, WhatDoesNotWaitIsNotTriedAgain) {
  Start();
  EXPECT_DEATH(writer_->TryAgain(), "check failed");
}

}  // namespace
}  // namespace roundhouse
