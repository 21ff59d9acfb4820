#include "server/run/job_phase.h"

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

const JobOutcome kPause{JobState::kPaused, JobReason::kNone, "", ""};
const JobOutcome kCancel{JobState::kCancelled, JobReason::kNone, "", ""};
const JobOutcome kFailure{JobState::kFailed, JobReason::kInternal, "why", ""};

TEST(JobPhaseTest, AJobLoadsStepsAndEnds) {
  JobPhase phase;
  EXPECT_TRUE(phase.loading());
  phase.StartSteps();
  EXPECT_TRUE(phase.stepping());
  EXPECT_FALSE(phase.ending());
  phase.StartFinal();
  EXPECT_TRUE(phase.finalizing());
  phase.Stop({JobState::kSucceeded, JobReason::kNone, "", "/output"});
  EXPECT_TRUE(phase.ending());
  phase.Finish();
  EXPECT_TRUE(phase.finished());
  EXPECT_EQ(phase.outcome().output_path, "/output");
}

TEST(JobPhaseTest, AJobThatEndsWhileItLoadsStillLoads) {
  JobPhase phase;
  phase.Stop(kPause);
  EXPECT_TRUE(phase.loading());
  EXPECT_TRUE(phase.pausing());
  EXPECT_FALSE(phase.stopping());
  phase.Finish();
  EXPECT_FALSE(phase.loading());
  EXPECT_TRUE(phase.finished());
}

TEST(JobPhaseTest, StepsEndOrAreGivenUp) {
  for (const bool abandons : {false, true}) {
    JobPhase phase;
    phase.StartSteps();
    phase.Stop(kPause);
    EXPECT_TRUE(phase.stopping());
    EXPECT_TRUE(phase.letting_end());
    if (abandons) {
      phase.Abandon();
      EXPECT_FALSE(phase.letting_end());
      EXPECT_FALSE(phase.quiet());
    }
    phase.BeQuiet();
    EXPECT_TRUE(phase.quiet());
    phase.BeQuiet();  // it is told twice: a step ended, and the quiet came
    EXPECT_FALSE(phase.letting_end());
  }
}

TEST(JobPhaseTest, APauseGivesWayAndAFailureDoesNot) {
  JobPhase phase;
  phase.StartSteps();
  phase.Stop(kPause);
  phase.Abandon();
  phase.Stop(kCancel);
  EXPECT_EQ(phase.outcome().state, JobState::kCancelled);
  EXPECT_FALSE(phase.letting_end()) << "it was given up before";
  phase.Stop(kFailure);
  EXPECT_EQ(phase.outcome().state, JobState::kCancelled);

  JobPhase failed;
  failed.StartSteps();
  failed.Stop(kFailure);
  failed.Stop(kCancel);
  failed.Stop(kPause);
  failed.AddToMessage("; more");
  EXPECT_EQ(failed.outcome().message, "why; more");
}

TEST(JobPhaseTest, APauseWithAReasonIsNone) {
  JobPhase phase;
  phase.StartSteps();
  phase.Stop(kPause);
  EXPECT_TRUE(phase.pausing());
  phase.SetOutcome({JobState::kPaused, JobReason::kStorageFull, "", ""});
  EXPECT_FALSE(phase.pausing());
}

TEST(JobPhaseDeathTest, OtherArrowsAreMistakes) {
  JobPhase phase;
  EXPECT_DEATH(phase.outcome(), "check failed");
  EXPECT_DEATH(phase.StartFinal(), "check failed");
  EXPECT_DEATH(phase.Finish(), "check failed");
  EXPECT_DEATH(phase.BeQuiet(), "check failed");
  phase.StartSteps();
  EXPECT_DEATH(phase.StartSteps(), "check failed");
  EXPECT_DEATH(phase.Abandon(), "check failed");
  EXPECT_DEATH(phase.SetOutcome(kPause), "check failed");
  phase.Stop(kPause);
  phase.BeQuiet();
  EXPECT_DEATH(phase.Abandon(), "check failed");
  phase.Finish();
  EXPECT_DEATH(phase.Finish(), "check failed");
  EXPECT_DEATH(phase.Stop(kCancel), "check failed");
}

}  // namespace
}  // namespace roundhouse
