#include "server/admission/weight_names.h"

#include <filesystem>
#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "server/admission/admission_test_fixture.h"
#include "server/admission/export_names.h"
#include "server/admission/sample_names.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

bool Says(const absl::Status& status, const std::string& text) {
  return absl::StrContains(std::string(status.message()), text);
}

class WeightNamesTest : public AdmissionTest {
 protected:
  const WeightNames& names() { return admission_->names(); }
};

TEST_F(WeightNamesTest, APathIsLookedUpUnderTheDataRoots) {
  EXPECT_EQ(*names().ResolvePath("dataset", "d.jsonl", PathKind::kFile),
            root_ + "/data/d.jsonl");
  EXPECT_EQ(*names().resolver()("model_name_or_path", "m", PathKind::kModel),
            root_ + "/data/m");
}

TEST_F(WeightNamesTest, ANameLikeOneThatIsThereIsMeant) {
  const auto found = names().ResolvePath("dataset", "e.jsonl", PathKind::kFile);
  EXPECT_EQ(ErrorReason(found.status()), FieldReason::kPathNotFound);
  EXPECT_TRUE(Says(found.status(), "did you mean ")) << found.status();
}

TEST_F(WeightNamesTest, AJobIsFoundByItsIdAndByItsOutputsName) {
  const JobRecord job = Store(*Check(kJob));
  EXPECT_EQ(names().FindJob(job.id)->id, job.id);
  EXPECT_EQ(names().FindJob("out")->id, job.id);
  EXPECT_TRUE(absl::IsNotFound(names().FindJob("other").status()));
}

TEST_F(WeightNamesTest, AJobsWeightsAreItsOutputOrACheckpoint) {
  const JobRecord job = Store(*Check(kJob));
  const auto none = names().FindWeights("source", job.id, PathKind::kModel);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->path, "");
  EXPECT_EQ(none->job->id, job.id);
  const std::string checkpoint =
      admission_->paths().Directory(job) + "/checkpoint-40";
  const std::string name = job.id + "/checkpoint-40";
  EXPECT_TRUE(
      Says(names().FindWeights("source", name, PathKind::kModel).status(),
           "has no checkpoint-40; it has no checkpoints"));
  std::filesystem::create_directories(checkpoint);
  EXPECT_EQ(names().FindWeights("source", name, PathKind::kModel)->path,
            checkpoint);
  EXPECT_EQ(names().FindWeights("source", "m", PathKind::kModel)->path,
            root_ + "/data/m");
}

TEST_F(WeightNamesTest, AnExportGoesToANameThatIsFree) {
  const ExportNames& exports = admission_->exports();
  const auto plan = [&](const std::string& output) {
    return exports.Plan({.source = "m", .output = output}).status();
  };
  EXPECT_TRUE(Says(plan("a b"), "does not end in a name")) << plan("a b");
  EXPECT_TRUE(Says(plan("gone/x"), "make it first")) << plan("gone/x");
  const std::string there = root_ + "/data/m";
  EXPECT_TRUE(absl::IsAlreadyExists(plan(there))) << plan(there);
  const std::string own = root_ + "/state/jobs/x";
  EXPECT_TRUE(Says(plan(own), "is the server's own")) << plan(own);
}

TEST_F(WeightNamesTest, AJobWithoutWeightsHasNothingToSample) {
  const JobRecord job = Store(*Check(kJob));
  const auto source = OpenNamedSample(names(), admission_->roots(), job.id);
  EXPECT_EQ(ErrorReason(source.status()), FieldReason::kIllegalState);
  EXPECT_TRUE(Says(source.status(), "its first checkpoint comes at step 5"))
      << source.status();
}

}  // namespace
}  // namespace roundhouse
