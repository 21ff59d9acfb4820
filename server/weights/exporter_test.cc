// Exporter over a files worker that fills its pieces with "m" (tests/fakes).
#include "server/weights/exporter.h"

#include <deque>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files/file_fault.h"
#include "gtest/gtest.h"
#include "server/spec/spec_error.h"
#include "server/testing/test_model.h"
#include "server/workers/process_pool.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;
using Tasks = std::vector<std::shared_ptr<ExportTask>>;

constexpr uint64_t kPieceBytes = 40;

class ExporterTest : public testing::Test, public WorkerPool::Listener {
 protected:
  ExporterTest()
      : root_(fs::canonical(testing::TempDir()) / "exporter_test"),
        loop_(*EventLoop::Create()),
        arena_(*HostArena::Create(1 << 20, 3)) {
    fs::remove_all(root_);
    fs::create_directories(root_ + "/out");
    WriteTestFile(root_ + "/tokenizer.json", "{}");
    options_.worker_program = "tests/fakes/wire_worker";
    options_.restart_delay = absl::Milliseconds(1);
  }
  ~ExporterTest() override {
    exporter_.reset();
    files_line_.reset();
    pool_.reset();
    fs::remove_all(root_);
  }

  std::string Note() const { return root_ + "/note"; }
  static std::string Temporary(const std::string& name) {
    return kExportTemporaryPrefix + name + "-0123456789abcdef";
  }

  // Two files, one of two pieces, one of `pieces`; source "bad" can't be
  // planned.
  absl::StatusOr<ExportPlan> Plan(const ExportRequest& request) {
    planned_.push_back(request.source);
    if (request.source == "bad") {
      return FieldError(FieldReason::kInvalidValue, "source", "bad");
    }
    ExportPlan plan{.kind = ExportKind::kMerged};
    plan.output = root_ + "/out/" + request.output;
    plan.texts["config.json"] = "{}";
    plan.copied_files = {
        {"tokenizer.json",
         AnyFiles().Open(root_ + "/tokenizer.json")->checked()}};
    for (const auto& [name, pieces] :
         {std::pair<const char*, uint64_t>{"a", 2}, {"b", pieces_}}) {
      for (uint64_t i = 0; i < pieces; ++i) {
        ExportPiece piece{
            .tensor = "w", .part = plan.parts.size(), .bytes = kPieceBytes};
        piece.rows.row_count = 2;
        piece.rows.columns = 5;
        piece.rows.output_offset = 4 + kPieceBytes * i;
        plan.pieces.push_back(piece);
        plan.bytes += kPieceBytes;
      }
      FilePart part{.path = name, .prefix = "HEAD"};
      part.file_bytes = 4 + 40 * pieces;
      plan.disk_bytes += part.file_bytes;
      plan.parts.push_back(std::move(part));
    }
    return plan;
  }

  // Runs an export of each request to its end; `ways` are those of the files
  // worker's first, second ... process.
  void Run(const std::vector<ExportRequest>& requests,
           std::deque<std::string> ways = {}) {
    options_.kill_at[WorkerId{2}] = std::move(ways);
    pool_ = *ProcessPool::Create(*loop_, *arena_, options_);
    files_line_ = std::make_unique<FilesLine>(*pool_);
    exporter_ = std::make_unique<Exporter>(
        *loop_, *files_line_, AnyFiles(), Note(),
        [this](const ExportRequest& request) { return Plan(request); });
    for (const ExportRequest& request : requests) {
      tasks_.push_back(exporter_->Start(request));
    }
    ASSERT_TRUE(pool_->Start(this).ok());
    Look();
    loop_->Run();
  }
  void Look() {
    if (on_look_) on_look_();
    for (const auto& task : tasks_) {
      if (task->result().has_value()) continue;
      loop_->After(absl::Milliseconds(1), [this] { Look(); });
      return;
    }
    pool_->Stop(absl::Minutes(5), [this] { loop_->Quit(); });
  }

  void OnWorkerUp(WorkerId worker) override {
    if (Number(worker) == 2) files_line_->OnWorkerUp();
  }
  void OnMessage(WorkerId, const wire::Message&) override {}
  void OnWorkerDown(WorkerId, const std::string&) override {}
  void OnDeviceLost(DeviceId, const std::string&) override {}

  absl::Status Result(size_t task) const {
    return tasks_[task]->result()->status();
  }
  // Names in the folder of the outputs.
  std::vector<std::string> Left() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(root_ + "/out")) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }
  void ExpectWhole(const std::string& name) const {
    const std::string path = root_ + "/out/" + name;
    EXPECT_EQ(ReadTestFile(path + "/a"), "HEAD" + std::string(80, 'm'));
    EXPECT_EQ(ReadTestFile(path + "/b"),
              "HEAD" + std::string(kPieceBytes * pieces_, 'm'));
    EXPECT_EQ(ReadTestFile(path + "/config.json"), "{}");
    EXPECT_EQ(ReadTestFile(path + "/tokenizer.json"), "{}");
  }

  const std::string root_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<HostArena> arena_;
  ProcessPoolOptions options_;
  std::unique_ptr<ProcessPool> pool_;
  std::unique_ptr<FilesLine> files_line_;
  std::unique_ptr<Exporter> exporter_;
  uint64_t pieces_ = 3;
  Tasks tasks_;
  std::vector<std::string> planned_;
  std::function<void()> on_look_;
};

using Names = std::vector<std::string>;

TEST_F(ExporterTest, AnExportIsThereWholeUnderItsName) {
  Run({{.source = "s", .output = "x"}});
  ASSERT_TRUE(Result(0).ok()) << Result(0);
  EXPECT_EQ(**tasks_[0]->result(), root_ + "/out/x");
  ExpectWhole("x");
  EXPECT_EQ(Left(), Names{"x"});
  EXPECT_FALSE(fs::exists(Note()));
  EXPECT_EQ(tasks_[0]->progress(),
            (ExportProgress{ExportKind::kMerged, 200, 200}));
}

TEST_F(ExporterTest, OneAfterTheOtherInTheirOrder) {
  Run({{.source = "1", .output = "x"},
       {.source = "bad", .output = "y"},
       {.source = "3", .output = "z"}});
  EXPECT_EQ(planned_, (Names{"1", "bad", "3"}));
  EXPECT_TRUE(Result(0).ok()) << Result(0);
  EXPECT_EQ(std::string(Result(1).message()), "source: bad");
  EXPECT_TRUE(Result(2).ok()) << Result(2);
  ExpectWhole("x");
  ExpectWhole("z");
}

TEST_F(ExporterTest, AnOutputThatCameMeanwhileStays) {
  on_look_ = [this] {
    fs::create_directories(root_ + "/out/x");
    WriteTestFile(root_ + "/out/x/mine", "mine");
  };
  Run({{.source = "s", .output = "x"}});
  EXPECT_EQ(Result(0).code(), absl::StatusCode::kAlreadyExists) << Result(0);
  EXPECT_EQ(ErrorField(Result(0)), "output");
  EXPECT_EQ(ReadTestFile(root_ + "/out/x/mine"), "mine");
  EXPECT_EQ(Left(), Names{"x"});
}

TEST_F(ExporterTest, AFullDiskLeavesNothing) {
  Run({{.source = "s", .output = "x"}}, {"full"});
  EXPECT_EQ(Result(0).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrorReason(Result(0)), FieldReason::kStorageFull);
  EXPECT_TRUE(absl::StartsWith(Result(0).message(), "output: tensor w: "))
      << Result(0);
  EXPECT_EQ(Left(), Names{});
  EXPECT_FALSE(fs::exists(Note()));
}

TEST_F(ExporterTest, APieceWhoseWorkerDiedIsSentAgain) {
  Run({{.source = "s", .output = "x"}}, {"die", "die-at-start", "die"});
  ASSERT_TRUE(Result(0).ok()) << Result(0);
  ExpectWhole("x");
}

TEST_F(ExporterTest, APieceThatKillsEveryWorkerIsGivenUp) {
  Run({{.source = "s", .output = "x"}, {.source = "t", .output = "y"}},
      std::deque<std::string>(kMaxPieceDeaths, "die"));
  EXPECT_EQ(Result(0).code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(absl::StrContains(Result(0).message(),
                                "tensor w: the files worker died 5 times"))
      << Result(0);
  EXPECT_TRUE(Result(1).ok()) << Result(1);
  EXPECT_EQ(Left(), Names{"y"});
}

TEST_F(ExporterTest, CancellingLeavesNothing) {
  pieces_ = 10000;  // of 30 ms
  on_look_ = [this] {
    tasks_[1]->Cancel();
    if (tasks_[0]->progress().done_bytes > 0) tasks_[0]->Cancel();
  };
  Run({{.source = "s", .output = "x"}, {.source = "t", .output = "y"}},
      {"slow"});
  EXPECT_EQ(Result(0).code(), absl::StatusCode::kCancelled) << Result(0);
  EXPECT_EQ(Result(1).code(), absl::StatusCode::kCancelled) << Result(1);
  EXPECT_EQ(planned_, Names{"s"});
  EXPECT_EQ(Left(), Names{});
  EXPECT_FALSE(fs::exists(Note()));
}

TEST_F(ExporterTest, StoppingEndsAllAndRefusesMore) {
  pieces_ = 10000;
  bool stopped = false;
  on_look_ = [&] {
    if (stopped || tasks_[0]->progress().done_bytes == 0) return;
    stopped = true;
    exporter_->Stop();
    tasks_.push_back(exporter_->Start({.source = "u", .output = "z"}));
  };
  Run({{.source = "s", .output = "x"}, {.source = "t", .output = "y"}},
      {"slow"});
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(Result(i).code(), absl::StatusCode::kUnavailable) << Result(i);
  }
  EXPECT_EQ(planned_, Names{"s"});
  EXPECT_EQ(Left(), Names{});
}

TEST_F(ExporterTest, OnlySoManyWait) {
  pieces_ = 10000;
  std::vector<ExportRequest> requests(kMaxWaitingExports + 2,
                                      {.source = "s", .output = "x"});
  on_look_ = [this] {
    if (!tasks_.back()->result().has_value()) return;
    for (const auto& task : tasks_) task->Cancel();
  };
  Run(requests, {"slow"});
  EXPECT_EQ(Result(kMaxWaitingExports + 1).code(),
            absl::StatusCode::kResourceExhausted);
  for (size_t i = 0; i <= kMaxWaitingExports; ++i) {
    EXPECT_EQ(Result(i).code(), absl::StatusCode::kCancelled) << Result(i);
  }
}

TEST_F(ExporterTest, WhatAKilledDaemonLeftIsRemoved) {
  const std::string left = root_ + "/out/" + Temporary("old");
  fs::create_directories(left);
  WriteTestFile(left + "/a", "HEAD");
  WriteTestFile(Note(), left);
  Run({});
  EXPECT_EQ(Left(), Names{});
  EXPECT_FALSE(fs::exists(Note()));
}

// The note keeps what a failing disk does not let go, for the next export.
TEST_F(ExporterTest, WhatCannotBeRemovedIsRemovedLater) {
  on_look_ = [this] { fs::create_directories(root_ + "/out/x"); };
  // Twice as x fails and once as y begins: four files and their folder.
  ASSERT_TRUE(ArmFileFaults("export.remove:EIO:15").ok());
  Run({{.source = "s", .output = "x"}, {.source = "s", .output = "y"}});
  ASSERT_TRUE(ArmFileFaults("").ok());
  EXPECT_EQ(Result(0).code(), absl::StatusCode::kAlreadyExists) << Result(0);
  ExpectWhole("y");
  EXPECT_EQ(Left().size(), 2u);
  EXPECT_FALSE(fs::exists(Note()));
}

TEST_F(ExporterTest, NothingElseIsRemoved) {
  fs::create_directories(root_ + "/out/mine");
  WriteTestFile(Note(), root_ + "/out/mine");
  Run({});
  EXPECT_EQ(Left(), Names{"mine"});
  EXPECT_FALSE(fs::exists(Note()));
}

}  // namespace
}  // namespace roundhouse
