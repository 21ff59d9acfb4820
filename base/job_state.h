// The states of a job and the transitions between them.
//
//   VALIDATING -> QUEUED -> LOADING -> RUNNING -> FINALIZING -> SUCCEEDED
//
//   RUNNING -> FINALIZING comes after the last step: of the job file, or the
//     one that early stopping or a finish made the last
//   LOADING, RUNNING -> PAUSING -> PAUSED -> QUEUED          pause, resume
//   QUEUED -> PAUSED -> QUEUED
//   RUNNING, FINALIZING -> PAUSED -> RUNNING, FINALIZING, PAUSING     what it
//     saves does not fit on the disk: it keeps its memory and goes on where it
//     was (PAUSING: the save of a pause, which ends as a pause does)
//   LOADING, RUNNING, FINALIZING -> RECOVERING -> LOADING    a process died or
//     the daemon was restarted; also RECOVERING -> QUEUED, RUNNING, PAUSED
//   PAUSED -> RECOVERING -> PAUSED    the daemon was restarted, and what the
//     job kept in memory is gone
//   LOADING -> QUEUED                 what it needs is taken; it waits again
//   LOADING -> PAUSED                 what it loads can't be read, or what it
//     keeps can't be written, just now
//   PAUSING -> PAUSED | RECOVERING
//   any state but the final three -> FAILED | CANCELLING
//   VALIDATING, QUEUED, PAUSED, CANCELLING -> CANCELLED
//
// SUCCEEDED, FAILED and CANCELLED are final.  A job is VALIDATING while its
// data are read, so pausing it there keeps what was read and stops before
// QUEUED.
//
// Pure functions; thread-safe.  The numbers are stored and sent: never
// renumber.  fine_tuning_job.proto has the same ones, which convert_test
// compares.
#ifndef ROUNDHOUSE_BASE_JOB_STATE_H_
#define ROUNDHOUSE_BASE_JOB_STATE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace roundhouse {

enum class JobState {
  kValidating = 1,
  kQueued = 2,
  kLoading = 3,
  kRunning = 4,
  kPausing = 5,
  kPaused = 6,
  kRecovering = 7,
  kFinalizing = 8,
  kCancelling = 9,
  kSucceeded = 10,
  kFailed = 11,
  kCancelled = 12,
};

// Why a job failed or waits; kNone on a job in good order.
enum class JobReason {
  kNone = 0,
  kInvalidDataset = 1,
  kInvalidModel = 2,
  kHostMemory = 3,
  kDeviceMemory = 4,
  kNonFiniteLoss = 5,
  kCheckpointCorrupt = 6,
  kStorageFull = 7,
  kNoHealthyDevice = 8,
  kRuntimeLimit = 9,  // no job has it yet, nor the next
  kQuota = 10,
  kInternal = 11,
  // A file can't be read or written, and not for want of space: an I/O error, a
  // folder in the way, a mount that does not answer.
  kStorageError = 12,
  // It is saved, and queued again: others have its memory or its place.
  kGivesWay = 13,
};

// "RUNNING", "NON_FINITE_LOSS"; "" for kNone.
const char* JobStateName(JobState state);
const char* JobReasonName(JobReason reason);
// nullopt for a number that is none of them.
std::optional<JobState> JobStateFromNumber(int number);
std::optional<JobReason> JobReasonFromNumber(int number);
const std::vector<JobState>& AllJobStates();

bool IsFinal(JobState state);
// A process works for the job: it holds or is getting arena memory.
bool IsActive(JobState state);

// kFailedPrecondition naming both states when the diagram has no such arrow.  A
// state is no arrow to itself.
absl::Status CheckTransition(JobState from, JobState to);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_JOB_STATE_H_
