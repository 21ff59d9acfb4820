// Engine: how jobs come to other states: taken up from an earlier daemon, as
// somebody asks, or as they fail.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "base/status.h"
#include "server/jobs/engine.h"
#include "server/jobs/finish_mark.h"
#include "server/spec/spec_error.h"
#include "server/weights/checkpoint.h"

namespace roundhouse {
namespace {

// For a disk that has room: a quota may be full, or it was there for a moment.
// Each try waits twice as long: it may take a large disk to its end again.
constexpr absl::Duration kRetryUntaken = absl::Seconds(5);
constexpr absl::Duration kMostRetryUntaken = absl::Minutes(10);
constexpr int kDoublings = 7;

// What an earlier daemon kept; `steps` have checkpoints.
std::string GivenBackText(const std::vector<int64_t>& steps) {
  return absl::StrCat(
      "the daemon was restarted, and the memory that the job kept was given "
      "back with the last one; resumed, it goes on after step ",
      steps.empty() ? 0 : steps.back());
}

absl::Status CheckNotFinal(const JobRecord& job, const char* to_do) {
  if (!IsFinal(job.state)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(job.id, " has ended (", JobStateName(job.state),
                   "); there is nothing to ", to_do));
}

}  // namespace

// --- taking up ---

absl::Status Engine::Recover() {
  std::vector<JobState> unfinished = AllJobStates();
  std::erase_if(unfinished, IsFinal);
  std::vector<JobRecord> jobs;
  std::optional<int64_t> before;
  do {
    ASSIGN_OR_RETURN(const JobPage page, store_.List(unfinished, before, 500));
    jobs.insert(jobs.end(), page.jobs.begin(), page.jobs.end());
    before = page.next_before;
  } while (before.has_value());
  std::reverse(jobs.begin(), jobs.end());  // oldest first
  RemoveLeftovers();
  for (const JobRecord& job : jobs) TakeUp(job);
  taken_up_ = true;
  UpdateCounts();
  Tick();
  StartNext();
  return absl::OkStatus();
}

void Engine::TakeUp(const JobRecord& job) {
  switch (job.state) {
    case JobState::kValidating:
      AddToValidate(job.id);
      break;
    case JobState::kCancelling:
      SetState(job.id, JobState::kCancelled, JobReason::kNone, "");
      break;
    case JobState::kPausing:
      SetState(job.id, JobState::kPaused, JobReason::kNone,
               "the daemon stopped; goes on from its last checkpoint");
      break;
    case JobState::kQueued:
      queue_.push_back({job.id, absl::Now()});
      break;
    case JobState::kPaused:
      if (!job.progress.memory_kept) {
        // It never ran, and is to go on by itself.
        if (job.reason == JobReason::kStorageFull && job.attempts == 0) {
          without_room_[job.id].due = absl::Now() + kRetryUntaken;
        }
        break;
      }
      SetState(job.id, JobState::kRecovering, JobReason::kNone,
               "the daemon was restarted");
      SetState(job.id, JobState::kPaused, job.reason,
               GivenBackText(ListCheckpointSteps(paths_.Directory(job))));
      break;
    default:
      if (job.state != JobState::kRecovering) {
        SetState(job.id, JobState::kRecovering, JobReason::kNone,
                 "the daemon was restarted");
      }
      SetState(job.id, JobState::kQueued, JobReason::kNone, "",
               [this, id = job.id] { QueueAgain(id); });
  }
}

// It came before those that were queued since.
void Engine::QueueAgain(const std::string& id) {
  const auto later =
      std::find_if(queue_.begin(), queue_.end(), [&](const Queued& queued) {
        return JobNumber(queued.id) > JobNumber(id);
      });
  queue_.insert(later, {id, absl::Now()});
  UpdateCounts();
  StartNext();
}

// --- what is asked for ---

absl::StatusOr<JobRecord> Engine::CancelNow(const std::string& id) {
  ASSIGN_OR_RETURN(const JobRecord job, store_.Get(id));
  if (job.state == JobState::kCancelling || job.state == JobState::kCancelled) {
    return job;
  }
  RETURN_IF_ERROR(CheckNotFinal(job, "cancel"));
  RETURN_IF_ERROR(transitions_.CheckAsks(job.id));
  RunningJob* const running = FindRunning(job.id);
  const JobState to =
      running != nullptr ? JobState::kCancelling : JobState::kCancelled;
  ASSIGN_OR_RETURN(const JobRecord changed, transitions_.Ask(job.id, to, {}));
  UpdateCounts();
  if (running != nullptr) {
    running->set_state(to);
    running->runner().Cancel();
  } else {
    ShowEnded(job.id, -1, to, JobReason::kNone);
    Forget(job.id);
    StartNext();
  }
  return changed;
}

absl::StatusOr<JobRecord> Engine::PauseNow(const std::string& id) {
  without_room_.erase(id);  // it goes on when it is told to
  ASSIGN_OR_RETURN(const JobRecord job, store_.Get(id));
  if (job.state == JobState::kPausing || job.state == JobState::kPaused) {
    return job;
  }
  RETURN_IF_ERROR(CheckNotFinal(job, "pause"));
  RETURN_IF_ERROR(transitions_.CheckAsks(job.id));
  RunningJob* const running = FindRunning(job.id);
  const JobState to =
      running != nullptr ? JobState::kPausing : JobState::kPaused;
  ASSIGN_OR_RETURN(const JobRecord changed, transitions_.Ask(job.id, to, {}));
  UpdateCounts();
  if (running != nullptr) {
    running->set_state(to);
    running->runner().Pause();
  } else {
    ShowEnded(job.id, -1, to, JobReason::kNone);
    Forget(job.id);
    StartNext();
  }
  return changed;
}

absl::StatusOr<JobRecord> Engine::ResumeNow(const std::string& id) {
  without_room_.erase(id);
  ASSIGN_OR_RETURN(const JobRecord job, store_.Get(id));
  RETURN_IF_ERROR(CheckNotFinal(job, "resume"));
  RETURN_IF_ERROR(transitions_.CheckAsks(job.id));
  // Other states lead to QUEUED too, but not on anyone's word.
  if (job.state != JobState::kPaused) {
    return absl::FailedPreconditionError(
        absl::StrCat("a job in state ", JobStateName(job.state),
                     " can't be resumed: it is not PAUSED"));
  }
  if (RunningJob* const kept = FindRunning(job.id)) {
    ASSIGN_OR_RETURN(JobRecord changed, GoOn(*kept));
    // A pause whose save is tried again: as it ends.
    if (changed.state == JobState::kPausing) kept->set_resumed(true);
    return changed;
  }
  ASSIGN_OR_RETURN(JobRecord changed,
                   transitions_.Ask(job.id, JobState::kQueued, {}));
  Enqueue(job.id);
  return changed;
}

absl::StatusOr<JobRecord> Engine::FinishNow(const std::string& id) {
  ASSIGN_OR_RETURN(const JobRecord job, store_.Get(id));
  if (job.state == JobState::kFinalizing) return job;
  RETURN_IF_ERROR(CheckNotFinal(job, "finish"));
  RETURN_IF_ERROR(transitions_.CheckAsks(job.id));
  RunningJob* const running = FindRunning(job.id);
  const bool stepping = running != nullptr && running->runner().stepping();
  if (job.state != JobState::kRunning || !stepping) {
    return absl::FailedPreconditionError(absl::StrCat(
        "a job in state ", JobStateName(job.state),
        " can't be finished early: it is ",
        job.state == JobState::kRunning ? "ending already" : "not RUNNING"));
  }
  const int64_t step = running->runner().FinishStep();
  // First on disk: another life of the job ends there too.
  const absl::Status written = WriteFinishMark(paths_.FinishMark(job), step);
  if (absl::IsResourceExhausted(written)) {
    return FieldError(
        written.code(), "STORAGE_FULL", "",
        absl::StrCat(std::string(written.message()), "; nothing was done"));
  }
  RETURN_IF_ERROR(written);
  running->runner().FinishAfter(step);
  running->OnNote(absl::StrCat("asked to finish: its last step is ", step));
  return job;
}

// --- what has happened ---

void Engine::SetState(const std::string& id, JobState state, JobReason reason,
                      const std::string& message,
                      std::function<void()> stored) {
  transitions_.Want(id, state, {reason, message},
                    [this, stored = std::move(stored)] {
                      UpdateCounts();
                      if (stored) stored();
                    });
}

void Engine::FailJob(const std::string& id, JobReason reason,
                     const std::string& message) {
  EndJob(id, JobState::kFailed, reason, message);
}

void Engine::EndUntaken(const std::string& id, const absl::Status& status) {
  const JobReason reason = ReasonOf(status);
  const std::string message(status.message());
  if (reason == JobReason::kStorageFull || reason == JobReason::kStorageError) {
    const bool full = reason == JobReason::kStorageFull;
    if (full) {
      Untaken& untaken = without_room_[id];
      untaken.due =
          absl::Now() +
          std::min(kMostRetryUntaken, kRetryUntaken * (1 << untaken.tries));
      untaken.tries = std::min(untaken.tries + 1, kDoublings);
    }
    const auto job = store_.Get(id);
    if (job.ok() && job->state == JobState::kValidating) {
      // As it is resumed: its data are looked at again where it is QUEUED.
      SetState(id, JobState::kQueued, JobReason::kNone, "");
    }
    EndJob(id, JobState::kPaused, reason,
           absl::StrCat(message, full ? "; it goes on by itself when there is "
                                        "room, or when resumed"
                                      : "; it is tried again when resumed"));
  } else {
    EndJob(id, JobState::kFailed, reason, message);
  }
}

void Engine::EndJob(const std::string& id, JobState state, JobReason reason,
                    const std::string& message) {
  const auto job = store_.Get(id);
  if (job.ok()) {
    const auto files = JobFiles::Open(paths_.Directory(*job));
    if (files.ok()) {
      (*files)->Log(absl::StrCat(JobStateName(state), " ",
                                 JobReasonName(reason), ": ", message));
    }
  }
  SetState(id, state, reason, message,
           [this, id, state, reason] { ShowEnded(id, -1, state, reason); });
}

}  // namespace roundhouse
