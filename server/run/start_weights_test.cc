#include "server/run/start_weights.h"

#include "absl/strings/match.h"
#include "server/testing/job_parts_test_fixture.h"

namespace roundhouse {
namespace {

class StartWeightsTest : public JobPartsTest {
 protected:
  // A checkpoint of this job, after 3 steps.
  StartPoint Own() {
    StartPoint start;
    start.path = root_ + "/job/checkpoint-3";
    start.own = true;
    start.manifest.step = 3;
    start.manifest.dataset_sha256 = "a1";
    start.manifest.resolved_spec = options_->spec.ToJson();
    start.parts.resize(2);
    return start;
  }
};

TEST_F(StartWeightsTest, OtherDataThanThoseOfTheSubmitAreRefused) {
  Prepare("max_steps: 9");
  EXPECT_TRUE(CheckData(*options_).ok());  // it is not known
  options_->dataset_sha256 = "a1";
  EXPECT_TRUE(CheckData(*options_).ok());
  options_->dataset_sha256 = "b2";
  const absl::Status status = CheckData(*options_);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_TRUE(absl::StrContains(status.message(), "submit again")) << status;
}

TEST_F(StartWeightsTest, ACheckpointHasAllThatTrains) {
  Prepare("max_steps: 9");
  Allocate();
  const TrainingState& state = memory_->state();
  EXPECT_FALSE(ReadsSources(Own(), state));
  EXPECT_TRUE(ReadsSources(StartPoint(), state));
  const auto weights = FirstWeights(*options_, state, Own(), events_);
  EXPECT_EQ(weights.kind, wire::FileOpKind::kLoad);
  EXPECT_EQ(weights.parts.size(), 2u);
}

TEST_F(StartWeightsTest, RandomWeightsAreDrawn) {
  Prepare("max_steps: 9");
  Allocate();
  const auto weights =
      FirstWeights(*options_, memory_->state(), StartPoint(), events_);
  EXPECT_EQ(weights.kind, wire::FileOpKind::kInit);
  EXPECT_TRUE(events_.notes.empty());
}

TEST_F(StartWeightsTest, WhatIsNotThisJobsIsWarnedOf) {
  Prepare("max_steps: 9");
  TellOfStart(*options_, Own(), events_);
  EXPECT_EQ(events_.notes,
            std::vector<std::string>{"going on from " + Own().path});
  EXPECT_TRUE(events_.warnings.empty());

  StartPoint other = Own();
  other.own = false;
  TellOfStart(*options_, other, events_);  // the same rows in the same order
  EXPECT_TRUE(events_.warnings.empty());
  other.manifest.dataset_sha256 = "b2";
  TellOfStart(*options_, other, events_);
  ASSERT_EQ(events_.warnings.size(), 1u);
  EXPECT_TRUE(absl::StrContains(
      events_.warnings[0], "goes on with step 4 of its own order of batches"))
      << events_.warnings[0];
}

TEST_F(StartWeightsTest, RowsInAnotherOrderAreCounted) {
  Prepare("max_steps: 9");
  StartPoint other = Own();
  other.own = false;
  other.manifest.step = 2;  // an epoch is three
  Prepare("max_steps: 9\nseed: 5");
  other.rows_warning = RowsWarning(*options_, other);
  TellOfStart(*options_, other, events_);
  ASSERT_EQ(events_.warnings.size(), 1u);
  EXPECT_TRUE(absl::StrContains(events_.warnings[0], "again"))
      << events_.warnings[0];
}

TEST_F(StartWeightsTest, AFileThatChangedIsNoDiskThatFails) {
  EXPECT_TRUE(IsOfFile(absl::DataLossError("")));
  EXPECT_TRUE(IsOfFile(absl::NotFoundError("")));
  EXPECT_FALSE(IsOfFile(absl::InternalError("")));
  EXPECT_FALSE(IsOfFile(absl::UnavailableError("")));
}

}  // namespace
}  // namespace roundhouse
