// The line over real processes that speak base/wire (tests/fakes).
#include "server/workers/files_line.h"

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/testing/test_model.h"
#include "server/workers/process_pool.h"

namespace roundhouse {
namespace {

constexpr WorkerId kFiles{2};

// What the line says is kept as text: "2 OK", the operation and its end.
class FilesLineTest : public testing::Test, public WorkerPool::Listener {
 protected:
  FilesLineTest()
      : loop_(*EventLoop::Create()), arena_(*HostArena::Create(1 << 20, 3)) {
    options_.worker_program = "tests/fakes/wire_worker";
    options_.restart_delay = absl::Milliseconds(1);
    WriteTestFile(path_, "");
  }

  // `ways` are those of the files worker's first, second ... process.
  void Start(std::deque<std::string> ways = {}) {
    options_.kill_at[kFiles] = std::move(ways);
    pool_ = *ProcessPool::Create(*loop_, *arena_, options_);
    line_ = std::make_unique<FilesLine>(*pool_);
  }
  // Runs until so many ends were told.
  void Run(size_t ends) {
    ends_ = ends;
    ASSERT_TRUE(pool_->Start(this).ok());
    loop_->Run();
  }
  FilesLine::Ticket Ask(const std::string& name, int most_deaths = 100) {
    wire::MergeRows rows;
    rows.output.path = path_;
    return line_->Run(
        rows,
        [this, name](const absl::Status& status) {
          told_.push_back(
              absl::StrCat(name, " ", absl::StatusCodeToString(status.code())));
          if (on_told_) on_told_(name);
          if (told_.size() == ends_) End();
        },
        most_deaths);
  }
  void End() {
    loop_->After(absl::ZeroDuration(), [this] {
      pool_->Stop(absl::Minutes(5), [this] { loop_->Quit(); });
    });
  }

  void OnWorkerUp(WorkerId worker) override {
    if (worker != kFiles) return;
    if (on_up_) on_up_();
    line_->OnWorkerUp();
    if (on_sent_) on_sent_();
  }
  void OnMessage(WorkerId, const wire::Message&) override {}
  void OnWorkerDown(WorkerId worker, const std::string&) override {
    if (worker == kFiles) ++deaths_;
  }
  void OnDeviceLost(DeviceId, const std::string&) override {}

  using Told = std::vector<std::string>;
  const std::string path_ = testing::TempDir() + "/files_line_test";
  ProcessPoolOptions options_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<HostArena> arena_;
  std::unique_ptr<ProcessPool> pool_;
  std::unique_ptr<FilesLine> line_;
  Told told_;
  int deaths_ = 0;
  std::function<void(const std::string&)> on_told_;
  std::function<void()> on_up_;
  std::function<void()> on_sent_;  // the line has sent what was its first

 private:
  size_t ends_ = 0;
};

TEST_F(FilesLineTest, OperationsEndInTheOrderOfAsking) {
  Start();
  Ask("a");
  Ask("b");
  on_told_ = [this](const std::string& name) {
    if (name == "a") Ask("d");
  };
  on_up_ = [this] { Ask("c"); };
  Run(4);
  EXPECT_EQ(told_, (Told{"a OK", "b OK", "c OK", "d OK"}));
}

TEST_F(FilesLineTest, WhatADeadProcessHadGoesToTheNext) {
  Start({"die", "die"});
  Ask("a");
  Ask("b");
  Run(2);
  EXPECT_EQ(told_, (Told{"a OK", "b OK"}));
  EXPECT_EQ(deaths_, 2);
}

TEST_F(FilesLineTest, AnOperationMayCostSoManyDeaths) {
  Start({"die", "die"});
  Ask("a", 2);
  Run(1);
  EXPECT_EQ(told_, (Told{"a INTERNAL"}));
}

TEST_F(FilesLineTest, OneThatKillsHoldsUpNoOther) {
  Start({"die"});
  Ask("a");
  Ask("b");
  Ask("c");
  Run(3);
  EXPECT_EQ(told_, (Told{"b OK", "c OK", "a OK"}));
}

TEST_F(FilesLineTest, AFailureIsTold) {
  Start({"fail"});
  Ask("a");
  Run(1);
  EXPECT_EQ(told_, (Told{"a RESOURCE_EXHAUSTED"}));
}

TEST_F(FilesLineTest, AbandonedBeforeItIsSentItEndsAtOnce) {
  Start();
  Ask("a");
  const FilesLine::Ticket b = Ask("b");
  line_->Abandon(b);
  EXPECT_EQ(told_, (Told{"b CANCELLED"}));
  line_->Abandon(b);
  Run(2);
  EXPECT_EQ(told_, (Told{"b CANCELLED", "a OK"}));
}

TEST_F(FilesLineTest, AbandonedWithAProcessItIsWaitedFor) {
  Start({"die"});
  const FilesLine::Ticket a = Ask("a");
  Ask("b");
  on_sent_ = [this, a] { line_->Abandon(a); };
  Run(2);
  EXPECT_EQ(told_, (Told{"a CANCELLED", "b OK"}));
}

TEST_F(FilesLineTest, OfWhatIsForgottenNothingIsTold) {
  Start();
  const FilesLine::Ticket a = Ask("a");
  Ask("b");
  line_->Forget(Ask("c"));
  on_sent_ = [this, a] { line_->Forget(a); };
  on_told_ = [](const std::string& name) { EXPECT_NE(name, "c"); };
  Run(1);
  EXPECT_EQ(told_, (Told{"b OK"}));
}

}  // namespace
}  // namespace roundhouse
