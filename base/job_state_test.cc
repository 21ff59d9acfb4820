#include "base/job_state.h"

#include <set>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

bool Can(JobState from, JobState to) { return CheckTransition(from, to).ok(); }

TEST(JobStateTest, TheStraightWay) {
  const JobState way[] = {JobState::kValidating, JobState::kQueued,
                          JobState::kLoading,    JobState::kRunning,
                          JobState::kFinalizing, JobState::kSucceeded};
  for (size_t i = 0; i + 1 < std::size(way); ++i) {
    EXPECT_TRUE(Can(way[i], way[i + 1])) << JobStateName(way[i]);
    if (i + 2 < std::size(way)) {
      EXPECT_FALSE(Can(way[i], way[i + 2])) << JobStateName(way[i]);
    }
  }
}

TEST(JobStateTest, FinalStatesHaveNoWayOut) {
  for (JobState from :
       {JobState::kSucceeded, JobState::kFailed, JobState::kCancelled}) {
    EXPECT_TRUE(IsFinal(from));
    for (JobState to : AllJobStates()) EXPECT_FALSE(Can(from, to));
  }
}

TEST(JobStateTest, EveryLiveStateCanFailAndCanEndCancelled) {
  for (JobState from : AllJobStates()) {
    if (IsFinal(from)) continue;
    EXPECT_TRUE(Can(from, JobState::kFailed)) << JobStateName(from);
    EXPECT_TRUE(Can(from, JobState::kCancelled) ||
                Can(from, JobState::kCancelling))
        << JobStateName(from);
  }
}

TEST(JobStateTest, NoStateLeadsToItself) {
  for (JobState s : AllJobStates()) EXPECT_FALSE(Can(s, s));
}

TEST(JobStateTest, EveryStateIsReachable) {
  std::set<JobState> seen = {JobState::kValidating};
  for (size_t before = 0; before != seen.size();) {
    before = seen.size();
    for (JobState from : std::set<JobState>(seen)) {
      for (JobState to : AllJobStates()) {
        if (Can(from, to)) seen.insert(to);
      }
    }
  }
  EXPECT_EQ(seen.size(), AllJobStates().size());
}

TEST(JobStateTest, SuccessOnlyThroughFinalizing) {
  for (JobState from : AllJobStates()) {
    EXPECT_EQ(Can(from, JobState::kSucceeded), from == JobState::kFinalizing);
  }
}

TEST(JobStateTest, AFullDiskPausesWhatIsFinalizing) {
  EXPECT_TRUE(Can(JobState::kFinalizing, JobState::kPaused));
  EXPECT_TRUE(Can(JobState::kPaused, JobState::kQueued));
  EXPECT_FALSE(Can(JobState::kFinalizing, JobState::kPausing));
}

// What is kept in memory goes on where it was, and nowhere else.
TEST(JobStateTest, AJobThatKeepsItsMemoryGoesOnWhereItWas) {
  for (JobState state :
       {JobState::kRunning, JobState::kFinalizing, JobState::kPausing}) {
    EXPECT_TRUE(Can(state, JobState::kPaused)) << JobStateName(state);
    EXPECT_TRUE(Can(JobState::kPaused, state)) << JobStateName(state);
  }
  EXPECT_FALSE(Can(JobState::kPaused, JobState::kLoading));
  EXPECT_FALSE(Can(JobState::kPaused, JobState::kSucceeded));
}

TEST(JobStateTest, ARestartTakesWhatAPausedJobKept) {
  EXPECT_TRUE(Can(JobState::kPaused, JobState::kRecovering));
  EXPECT_TRUE(Can(JobState::kRecovering, JobState::kPaused));
}

TEST(JobStateTest, TheErrorNamesBothStates) {
  const absl::Status s =
      CheckTransition(JobState::kSucceeded, JobState::kCancelling);
  EXPECT_EQ(s.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::string(s.message()),
            "a job in state SUCCEEDED can't become CANCELLING: it has ended");
}

TEST(JobStateTest, NumbersRoundTripAndStrangersAreRefused) {
  for (JobState s : AllJobStates()) {
    EXPECT_EQ(JobStateFromNumber(static_cast<int>(s)), s);
  }
  EXPECT_FALSE(JobStateFromNumber(0).has_value());
  EXPECT_FALSE(JobStateFromNumber(13).has_value());
  EXPECT_FALSE(JobReasonFromNumber(14).has_value());
  EXPECT_STREQ(JobReasonName(JobReason::kNonFiniteLoss), "NON_FINITE_LOSS");
}

TEST(JobStateDeathTest, ANumberOutsideTheEnumIsABug) {
  EXPECT_DEATH(JobStateName(static_cast<JobState>(99)), "check failed");
  EXPECT_DEATH(JobReasonName(static_cast<JobReason>(14)), "check failed");
}

}  // namespace
}  // namespace roundhouse
