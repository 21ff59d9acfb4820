// One pull after the other over a hub without a network and real uploads: each
// is whole, or stops where a test says, and the next one goes on there.
#include "server/hub/model_pull.h"

#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/files/durable_file.h"
#include "base/files/file_fault.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/hub/fake_hub.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

using Begins = std::vector<uint64_t>;
constexpr size_t kWeightBytes = (9 << 20) + 77;
constexpr char kWeights[] = "model.safetensors";

class ModelPullTest : public testing::Test {
 protected:
  ModelPullTest() {
    dir_ = std::filesystem::path(testing::TempDir()) /
           testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    store_ = *JobStore::Open({.path = dir_ / "jobs.db"});
    Restart();
    hub_.AddModel(kWeightBytes);
    wish_ = {
        .model = {.id = "org/tiny"},
        .name = "tiny",
        .project = kDefaultProject,
        .owner = "anna",
        .reads = [](const std::string&) { return true; },
        .room = [](const NewUpload&, uint64_t) { return absl::OkStatus(); }};
  }
  ~ModelPullTest() override { ArmFileFaults("").IgnoreError(); }

  // As a daemon of before left them.
  void Restart() {
    uploads_.reset();
    uploads_ = *Uploads::Open(
        {.state_dir = dir_,
         .bytes_of = [this](const std::string&) { return limit_; },
         .free_bytes = [this](const std::string&) { return free_; }},
        store_.get());
  }

  absl::StatusOr<PulledModel> Pull() {
    PullTask task;
    return PullAs(&task);
  }
  absl::StatusOr<PulledModel> PullAs(PullTask* task) {
    const ModelPullsOptions options = hub_.Options();
    const auto source = *options.make_source("", [] { return false; });
    return ModelPull(wish_, *options.hub, source.get(), options.patience,
                     uploads_.get(), task)
        .Run();
  }
  // The next pull ends after so many bytes of the weights.
  void BreakAfter(size_t bytes) {
    hub_.Next(kWeights, FakeHub::CutAfter(bytes));
    for (int i = 0; i < 3; ++i) hub_.Next(kWeights, FakeHub::Status(500));
  }
  void ExpectRefused(const absl::StatusOr<PulledModel>& pulled,
                     absl::StatusCode code, const std::string& part) {
    EXPECT_EQ(pulled.status().code(), code) << pulled.status();
    EXPECT_NE(pulled.status().message().find(part), std::string::npos)
        << pulled.status();
  }
  std::string Read(const UploadRecord& record, const std::string& name) {
    std::ifstream file(dir_ / "uploads/versions" / record.id / name);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  std::filesystem::path dir_;
  uint64_t limit_ = uint64_t{1} << 40;
  uint64_t free_ = uint64_t{1} << 40;
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<Uploads> uploads_;
  FakeHub hub_;
  PullWish wish_;
};

TEST_F(ModelPullTest, AModelIsAnUpload) {
  PullTask task;
  const auto pulled = PullAs(&task);
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_EQ(pulled->record.reference(), "model:tiny@1");
  EXPECT_EQ(pulled->record.owner, "anna");
  EXPECT_EQ(pulled->commit, kFakeCommit);
  EXPECT_EQ(pulled->left_out, std::vector<std::string>{"pytorch_model.bin"});
  EXPECT_EQ(pulled->left_out_count, 1u);
  for (const char* name : {"config.json", "tokenizer.json", kWeights}) {
    EXPECT_EQ(Read(pulled->record, name), hub_.Data(name)) << name;
  }
  const PullProgress progress = task.progress();
  EXPECT_EQ(progress.total_bytes, pulled->record.total_bytes());
  EXPECT_EQ(progress.file_count, 3u);
  // Files are those of the commit, whatever the branch is now.
  for (const FakeHub::Request& request : hub_.requests()) {
    if (request.path.find("/api/") != std::string::npos) continue;
    EXPECT_EQ(
        request.path.find(absl::StrCat("/org/tiny/resolve/", kFakeCommit, "/")),
        0u)
        << request.path;
  }
}

TEST_F(ModelPullTest, TheSameAgainFetchesNoWeights) {
  const auto first = Pull();
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = Pull();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->record.id, first->record.id);
  EXPECT_EQ(hub_.Begins(kWeights), (Begins{0}));
  // Nor does another revision that has the same ones.
  hub_.Add("config.json", "{\"a\": 1}", FakeHub::Store::kGit);
  const auto third = Pull();
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_EQ(third->record.version, 2);
  EXPECT_EQ(hub_.Begins(kWeights), (Begins{0}));
}

TEST_F(ModelPullTest, WhatBrokeOffGoesOnInALaterPull) {
  BreakAfter(5 << 20);
  ExpectRefused(Pull(), absl::StatusCode::kDeadlineExceeded,
                "the same pull goes on with it");
  const auto pulled = Pull();
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_EQ(Read(pulled->record, kWeights), hub_.Data(kWeights));
  EXPECT_EQ(hub_.Begins(kWeights).back(), uint64_t{5} << 20);
}

TEST_F(ModelPullTest, WhatBrokeOffGoesOnInALaterDaemon) {
  BreakAfter(8 << 20);
  EXPECT_FALSE(Pull().ok());
  Restart();
  const auto pulled = Pull();
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_EQ(Read(pulled->record, kWeights), hub_.Data(kWeights));
  // But for what a death may have left unwritten.
  EXPECT_EQ(hub_.Begins(kWeights).back(),
            (uint64_t{8} << 20) - kUploadAheadBytes);
}

TEST_F(ModelPullTest, ShardsComeByTheirIndex) {
  hub_.Add("model.safetensors.index.json", kFakeIndex, FakeHub::Store::kGit);
  hub_.Add("a.safetensors", "aaa", FakeHub::Store::kLfs);
  hub_.Add("b.safetensors", std::string(3 << 20, 'b'), FakeHub::Store::kLfs);
  // With the single file there is no need of them.
  const auto single = Pull();
  ASSERT_TRUE(single.ok()) << single.status();
  EXPECT_EQ(single->record.files->size(), 3u);
  nlohmann::json listing = nlohmann::json::parse(hub_.Listing());
  nlohmann::json& siblings = listing["siblings"];
  for (auto file = siblings.begin(); file != siblings.end(); ++file) {
    if ((*file)["rfilename"] != kWeights) continue;
    siblings.erase(file);
    break;
  }
  hub_.SetListing(listing.dump());
  const auto pulled = Pull();
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_EQ(pulled->record.files->size(), 5u);
  EXPECT_EQ(Read(pulled->record, "b.safetensors"), hub_.Data("b.safetensors"));
  EXPECT_EQ(Read(pulled->record, "model.safetensors.index.json"), kFakeIndex);
}

TEST_F(ModelPullTest, AWrongSha256IsFetchedAgainAndThenRefused) {
  const auto spoilt = [](const FakeHub::Request& request,
                         const std::string& data, const WebSink& sink) {
    return FakeHub::Whole(request, std::string(data.size(), 'x'), sink);
  };
  hub_.Next(kWeights, spoilt);
  ASSERT_TRUE(Pull().ok());
  EXPECT_EQ(hub_.Begins(kWeights), (Begins{0, 0}));
  hub_.Add(kWeights, "other", FakeHub::Store::kLfs);
  for (int i = 0; i < 3; ++i) hub_.Next(kWeights, spoilt);
  ExpectRefused(Pull(), absl::StatusCode::kFailedPrecondition,
                "is not what it lists, 3 times in a row: model.safetensors");
}

TEST_F(ModelPullTest, AWrongGitHashIsRefusedBeforeAnythingIsKept) {
  hub_.Next("config.json", [](const FakeHub::Request& request,
                              const std::string&, const WebSink& sink) {
    return FakeHub::Whole(request, "[]", sink);
  });
  ExpectRefused(Pull(), absl::StatusCode::kFailedPrecondition,
                "'config.json': what the hub sent has the git hash");
  EXPECT_TRUE(uploads_->List().empty());
}

TEST_F(ModelPullTest, LimitsAreAskedBeforeTheFirstByte) {
  limit_ = 1 << 20;
  ExpectRefused(Pull(), absl::StatusCode::kResourceExhausted,
                "disk_bytes of anna");
  limit_ = uint64_t{1} << 40;
  free_ = kUploadFreeBytes;
  ExpectRefused(Pull(), absl::StatusCode::kResourceExhausted, "bytes free");
  free_ = uint64_t{1} << 40;
  uint64_t asked = 0;
  wish_.room = [&asked](const NewUpload& upload, uint64_t bytes) {
    asked = bytes;
    EXPECT_EQ(upload.files.size(), 3u);
    return absl::ResourceExhaustedError("the table says no");
  };
  ExpectRefused(Pull(), absl::StatusCode::kResourceExhausted, "table");
  EXPECT_EQ(asked, kWeightBytes + 2 * kMinFileBytes);
  EXPECT_TRUE(hub_.Begins(kWeights).empty());
  EXPECT_TRUE(uploads_->List().empty());
}

TEST_F(ModelPullTest, AFullDiskEndsItAndLosesNothing) {
  ASSERT_TRUE(ArmFileFaults("upload.part:ENOSPC:1:9").ok());
  ExpectRefused(Pull(), absl::StatusCode::kResourceExhausted, "");
  ASSERT_TRUE(ArmFileFaults("").ok());
  const auto pulled = Pull();
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_EQ(Read(pulled->record, kWeights), hub_.Data(kWeights));
  EXPECT_GT(hub_.Begins(kWeights).back(), 0u);
}

TEST_F(ModelPullTest, AnErrorOfOurOwnIsNotTheHubs) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  hub_.Next(kWeights, [&](const FakeHub::Request& request,
                          const std::string& data, const WebSink& sink) {
    const rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    auto head = FakeHub::Whole(request, data, sink);
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    return head;
  });
  ExpectRefused(Pull(), absl::StatusCode::kUnavailable, "Too many open files");
  EXPECT_EQ(hub_.Begins(kWeights), (Begins{0}));
  const auto pulled = Pull();
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_EQ(Read(pulled->record, kWeights), hub_.Data(kWeights));
}

TEST_F(ModelPullTest, WhoStopsItEarlyLeavesNothing) {
  PullTask task;
  hub_.Next("tokenizer.json",
            [&task](const FakeHub::Request& request, const std::string& data,
                    const WebSink& sink) {
              task.Cancel();
              return FakeHub::Whole(request, data, sink);
            });
  ExpectRefused(PullAs(&task), absl::StatusCode::kCancelled, "was stopped");
  EXPECT_TRUE(uploads_->List().empty());
}

TEST_F(ModelPullTest, WhoStopsItKeepsWhatCame) {
  PullTask task;
  hub_.Next(kWeights,
            [&task](const FakeHub::Request& request, const std::string& data,
                    const WebSink& sink) -> absl::StatusOr<WebHead> {
              const WebHead head{.status = 200, .total = data.size()};
              absl::Status taken = sink(head, data.substr(0, 3 << 20));
              task.Cancel();
              if (taken.ok()) taken = sink(head, data.substr(3 << 20));
              if (!taken.ok()) return taken;
              return head;
            });
  ExpectRefused(PullAs(&task), absl::StatusCode::kCancelled, "was stopped");
  ASSERT_TRUE(Pull().ok());
  EXPECT_GE(hub_.Begins(kWeights).back(), uint64_t{3} << 20);
}

TEST_F(ModelPullTest, AnUploadThatIsDeletedMeanwhileEndsIt) {
  hub_.Next(kWeights, [this](const FakeHub::Request& request,
                             const std::string& data, const WebSink& sink) {
    EXPECT_TRUE(uploads_->Remove(uploads_->List().at(0).id).ok());
    return FakeHub::Whole(request, data, sink);
  });
  ExpectRefused(Pull(), absl::StatusCode::kNotFound, "there is no upload");
}

TEST_F(ModelPullTest, WhatItWaitsForIsSaid) {
  PullTask task;
  hub_.Next(kWeights, FakeHub::Status(503));
  std::string trouble;
  hub_.Next("config.json", [&](const FakeHub::Request& request,
                               const std::string& data, const WebSink& sink) {
    EXPECT_EQ(task.progress().phase, PullPhase::kAsking);
    return FakeHub::Whole(request, data, sink);
  });
  hub_.Next(kWeights, [&](const FakeHub::Request& request,
                          const std::string& data, const WebSink& sink) {
    EXPECT_EQ(task.progress().trouble, "");
    EXPECT_EQ(task.progress().file_name, kWeights);
    return FakeHub::Whole(request, data, sink);
  });
  ASSERT_TRUE(PullAs(&task).ok());
}

}  // namespace
}  // namespace roundhouse
