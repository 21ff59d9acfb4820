#include "base/job_state.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace roundhouse {
namespace {

using S = JobState;

const std::vector<S>& Successors(S from) {
  static const auto* const table = new std::vector<std::vector<S>>{
      {},
      /*kValidating*/
      {S::kQueued, S::kFailed, S::kCancelling, S::kCancelled},
      /*kQueued*/
      {S::kLoading, S::kPaused, S::kFailed, S::kCancelling, S::kCancelled},
      /*kLoading*/
      {S::kRunning, S::kQueued, S::kPausing, S::kPaused, S::kRecovering,
       S::kFailed, S::kCancelling},
      /*kRunning*/
      {S::kFinalizing, S::kPausing, S::kPaused, S::kRecovering, S::kFailed,
       S::kCancelling},
      /*kPausing*/
      {S::kPaused, S::kRecovering, S::kFailed, S::kCancelling},
      /*kPaused*/
      {S::kQueued, S::kRunning, S::kFinalizing, S::kPausing, S::kRecovering,
       S::kFailed, S::kCancelling, S::kCancelled},
      /*kRecovering*/
      {S::kLoading, S::kRunning, S::kQueued, S::kPaused, S::kFailed,
       S::kCancelling},
      /*kFinalizing*/
      {S::kSucceeded, S::kPaused, S::kRecovering, S::kFailed, S::kCancelling},
      /*kCancelling*/
      {S::kCancelled, S::kFailed},
      /*kSucceeded*/ {},
      /*kFailed*/ {},
      /*kCancelled*/ {},
  };
  return (*table)[static_cast<size_t>(from)];
}

constexpr const char* kStateNames[] = {
    "",          "VALIDATING", "QUEUED",     "LOADING",    "RUNNING",
    "PAUSING",   "PAUSED",     "RECOVERING", "FINALIZING", "CANCELLING",
    "SUCCEEDED", "FAILED",     "CANCELLED"};

constexpr const char* kReasonNames[] = {"",
                                        "INVALID_DATASET",
                                        "INVALID_MODEL",
                                        "HOST_MEMORY",
                                        "DEVICE_MEMORY",
                                        "NON_FINITE_LOSS",
                                        "CHECKPOINT_CORRUPT",
                                        "STORAGE_FULL",
                                        "NO_HEALTHY_DEVICE",
                                        "RUNTIME_LIMIT",
                                        "QUOTA",
                                        "INTERNAL",
                                        "STORAGE_ERROR",
                                        "GIVES_WAY"};

}  // namespace

const char* JobStateName(JobState state) {
  ROUNDHOUSE_CHECK(JobStateFromNumber(static_cast<int>(state)).has_value());
  return kStateNames[static_cast<int>(state)];
}

const char* JobReasonName(JobReason reason) {
  ROUNDHOUSE_CHECK(JobReasonFromNumber(static_cast<int>(reason)).has_value());
  return kReasonNames[static_cast<int>(reason)];
}

std::optional<JobState> JobStateFromNumber(int number) {
  if (number < 1 || number > static_cast<int>(S::kCancelled)) {
    return std::nullopt;
  }
  return static_cast<JobState>(number);
}

std::optional<JobReason> JobReasonFromNumber(int number) {
  if (number < 0 || number > static_cast<int>(JobReason::kGivesWay)) {
    return std::nullopt;
  }
  return static_cast<JobReason>(number);
}

const std::vector<JobState>& AllJobStates() {
  static const auto* const all = new std::vector<JobState>{
      S::kValidating, S::kQueued,    S::kLoading,    S::kRunning,
      S::kPausing,    S::kPaused,    S::kRecovering, S::kFinalizing,
      S::kCancelling, S::kSucceeded, S::kFailed,     S::kCancelled};
  return *all;
}

bool IsFinal(JobState state) { return Successors(state).empty(); }

bool IsActive(JobState state) {
  switch (state) {
    case S::kLoading:
    case S::kRunning:
    case S::kPausing:
    case S::kRecovering:
    case S::kFinalizing:
    case S::kCancelling:
      return true;
    default:
      return false;
  }
}

absl::Status CheckTransition(JobState from, JobState to) {
  const std::vector<S>& next = Successors(from);
  if (std::find(next.begin(), next.end(), to) != next.end()) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("a job in state ", JobStateName(from), " can't become ",
                   JobStateName(to), IsFinal(from) ? ": it has ended" : ""));
}

}  // namespace roundhouse
