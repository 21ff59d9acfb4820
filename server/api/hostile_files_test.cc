// Files and names that a member may put under a data root, asked for through
// the API: the server lives, and what it answers can be read.
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "server/api/api_test_fixture.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;

class HostileFilesTest : public ApiTestFixture {
 protected:
  // A link that leads to itself.
  void MakeLoop(const fs::path& path) {
    fs::create_directories(path.parent_path());
    fs::create_symlink(path.filename(), path);
  }
  grpc::Status Validate(const std::string& model) {
    v1::ValidateDatasetRequest request;
    request.mutable_options()->set_dataset(dir_ / "d.jsonl");
    request.mutable_options()->set_model_name_or_path(model);
    v1::ValidateDatasetResponse response;
    grpc::ClientContext context;
    Limit(&context);
    return datasets_->ValidateDataset(&context, request, &response);
  }
};

TEST_F(HostileFilesTest, OneNameDoesNotTakeTheListFromAll) {
  for (const char* name : {"\xff\xfe", "b\x1b[2J\n", "good"}) {
    fs::create_directories(dir_ / "models" / name);
    std::ofstream(dir_ / "models" / name / "config.json") << "{}";
  }
  MakeLoop(dir_ / "models/loop/config.json");
  MakeLoop(dir_ / "models/adapter_loop/adapter_config.json");
  v1::ListModelsResponse list;
  grpc::ClientContext context;
  Limit(&context);
  const grpc::Status status = models_->ListModels(&context, {}, &list);
  ASSERT_TRUE(status.ok()) << status.error_message();
  std::string names;
  for (const v1::Model& model : list.models()) {
    names += fs::path(model.name()).filename().string() + ";";
  }
  EXPECT_TRUE(absl::StrContains(names, "\\xff\\xfe;")) << names;
  EXPECT_TRUE(absl::StrContains(names, "good;")) << names;
}

// It is there; who reads it says what is wrong with it.
TEST_F(HostileFilesTest, ATokenizerThatLeadsToItselfEndsTheCallOnly) {
  MakeLoop(dir_ / "models/m/tokenizer.json");
  std::ofstream(dir_ / "helper") << "exit 1\n";
  EXPECT_FALSE(Validate(dir_ / "models/m").ok());
  EXPECT_EQ(MustCreate().name(), "projects/default/fineTuningJobs/job-1");
}

TEST_F(HostileFilesTest, AModelThatLeadsToItselfIsShownAsNotUsable) {
  MakeLoop(dir_ / "models/m/config.json");
  v1::GetModelRequest request;
  request.set_name(dir_ / "models/m");
  v1::Model model;
  grpc::ClientContext context;
  Limit(&context);
  const grpc::Status status = models_->GetModel(&context, request, &model);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(absl::StrContains(model.problem(), "config.json"))
      << model.problem();
}

// What a process printed last may be cut anywhere.
TEST_F(HostileFilesTest, AReasonThatIsNotUtf8IsToldToClients) {
  MustCreate();
  const auto failed = store_->Transition(
      "job-1", JobState::kFailed,
      {.reason = JobReason::kInternal, .message = "last words: \xff\xc3"});
  ASSERT_TRUE(failed.ok()) << failed.status();
  v1::ListFineTuningJobsResponse list;
  grpc::ClientContext context;
  Limit(&context);
  const grpc::Status status = jobs_->ListFineTuningJobs(&context, {}, &list);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(list.jobs_size(), 1);
  EXPECT_EQ(list.jobs(0).message(), "last words: \\xff\\xc3");
}

TEST_F(HostileFilesTest, ALibraryThatThrowsEndsTheCallOnly) {
  v1::CreateFineTuningJobRequest request;
  request.set_text("model: m\ndataset: d\nbatch_size: 997\n");
  v1::FineTuningJob job;
  EXPECT_EQ(Create(request, &job).error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(MustCreate().name(), "projects/default/fineTuningJobs/job-1");
}

}  // namespace
}  // namespace roundhouse
