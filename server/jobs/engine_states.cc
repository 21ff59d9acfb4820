// Engine: how jobs come to other states: taken up from an earlier daemon, as
// somebody asks, or as they fail.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "server/job/storage_reason.h"
#include "server/jobs/engine.h"
#include "server/run/finish_mark.h"
#include "server/spec/spec_error.h"
#include "server/weights/checkpoint.h"
#include "server/weights/leftovers.h"

namespace roundhouse {
namespace {

// What an earlier daemon kept; `steps` have checkpoints.
std::string GivenBackText(const std::vector<int64_t>& steps) {
  return absl::StrCat(
      "the daemon was restarted, and the memory that the job kept was given "
      "back with the last one; resumed, it goes on after step ",
      steps.empty() ? 0 : steps.back());
}

// Why a job could not be validated or started; DATA_LOSS is of the disk.
JobReason ReasonOf(const absl::Status& status) {
  const absl::StatusCode code = status.code();
  return code == absl::StatusCode::kInvalidArgument ? JobReason::kInvalidDataset
         : code == absl::StatusCode::kResourceExhausted
             ? JobReason::kStorageFull
         : code == absl::StatusCode::kDataLoss ? JobReason::kStorageError
                                               : JobReason::kInternal;
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
  RETURN_IF_ERROR(usage_.Load());
  outlook_.Load();
  std::vector<JobState> unfinished = AllJobStates();
  std::erase_if(unfinished, IsFinal);
  std::vector<JobRecord> jobs;
  std::optional<int64_t> before;
  do {
    ASSIGN_OR_RETURN(const JobPage page,
                     world_.store.List(unfinished, before, 500));
    jobs.insert(jobs.end(), page.jobs.begin(), page.jobs.end());
    before = page.next_before;
  } while (before.has_value());
  std::reverse(jobs.begin(), jobs.end());  // oldest first
  const JobPaths& paths = admission_->paths();
  // Removes what saves left that were cut short, before anything runs.
  SweepJobDirectories(paths.jobs());
  SweepOutputs(paths.outputs(), [this](const std::string& name) {
    return admission_->names().FindJob(name).ok();
  });
  // Nobody finds what it removes, and it may take long.
  sweeper_.TryRun([this] { remover_.FinishAll(); });
  for (const JobRecord& job : jobs) TakeUp(job);
  phase_ = Phase::kServing;
  UpdateCounts();
  Tick();
  StartNext();
  return absl::OkStatus();
}

void Engine::TakeUp(const JobRecord& job) {
  switch (job.state) {
    case JobState::kValidating:
      validations_.Add(job.id);
      break;
    case JobState::kCancelling:
      SetState(job.id, JobState::kCancelled, JobReason::kNone, "");
      break;
    case JobState::kPausing:
      if (job.reason == JobReason::kGivesWay) return ComeBack(job);
      SetState(job.id, JobState::kPaused, JobReason::kNone,
               "the daemon stopped; goes on from its last checkpoint");
      break;
    case JobState::kQueued:
      queue_.Add(QueuedNow(job.id));
      break;
    case JobState::kPaused:
      if (job.reason == JobReason::kGivesWay) return ComeBack(job);
      if (!job.progress.memory_kept) {
        if (job.reason == JobReason::kStorageFull &&
            absl::EndsWith(job.message, kGoesOnWithRoom)) {
          queue_.WaitForRoomAgain(job.id, world_.loop.clock().WallTime());
        }
        break;
      }
      SetState(job.id, JobState::kRecovering, JobReason::kNone,
               "the daemon was restarted");
      SetState(job.id, JobState::kPaused, job.reason,
               GivenBackText(
                   ListCheckpointSteps(admission_->paths().Directory(job))));
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

void Engine::ComeBack(const JobRecord& job) {
  if (job.state == JobState::kPausing) {
    SetState(job.id, JobState::kPaused, job.reason,
             "the daemon stopped; goes on from its last checkpoint");
  }
  SetState(job.id, JobState::kQueued, JobReason::kNone, "",
           [this, id = job.id] { QueueAgain(id); });
}

// It ran, or was about to.
void Engine::QueueAgain(const std::string& id) {
  JobQueue::Queued queued = QueuedNow(id);
  queued.ran = true;
  queue_.AddInOrder(queued);
  status_.HideEnded(id);
  UpdateCounts();
  StartNext();
}

void Engine::GoOnWithRoom() {
  if (phase_ == Phase::kDraining || !reserve_.held()) return;
  QueueWithRoom();
  kept_.GoOnWithRoom();
}

void Engine::QueueWithRoom() {
  const std::vector<std::string> waiting = queue_.WithoutRoom();
  if (waiting.empty()) return;
  const auto free_bytes = FreeDiskBytes(options_.state_dir);
  if (!free_bytes.ok() || *free_bytes < kRoomMarginBytes) return;
  for (const std::string& id : waiting) {
    if (!QueueIfRoom(id)) return;
  }
}

// False: the store takes nothing.
bool Engine::QueueIfRoom(const std::string& id) {
  const auto job = world_.store.Get(id);
  const bool waits = job.ok() && job->state == JobState::kPaused &&
                     job->reason == JobReason::kStorageFull &&
                     running_.Find(id) == nullptr;
  // Its load may find no room once more.
  const bool starts = job.ok() && (job->state == JobState::kQueued ||
                                   job->state == JobState::kLoading);
  if (transitions_.Waits(id) || starts ||
      (waits && !queue_.IsDue(id, world_.loop.clock().WallTime()))) {
    return true;  // how often it was tried is needed where there is no room
  }
  if (!waits) {
    queue_.ForgetRoom(id);
    return true;
  }
  RH_LOG(kInfo) << id << ": there is room again";
  if (!transitions_.Ask(id, JobState::kQueued, {}).ok()) return false;
  queue_.Add(QueuedNow(id));
  start_later_ = true;
  UpdateCounts();
  status_.HideEnded(id);
  return true;
}

// --- what is asked for ---

absl::StatusOr<JobRecord> Engine::CancelNow(const std::string& id) {
  ASSIGN_OR_RETURN(const JobRecord job, world_.store.Get(id));
  if (job.state == JobState::kCancelling || job.state == JobState::kCancelled) {
    return job;
  }
  RETURN_IF_ERROR(CheckNotFinal(job, "cancel"));
  RETURN_IF_ERROR(transitions_.CheckAsks(job.id));
  RunningJob* const running = running_.Find(job.id);
  const JobState to =
      running != nullptr ? JobState::kCancelling : JobState::kCancelled;
  ASSIGN_OR_RETURN(const JobRecord changed, transitions_.Ask(job.id, to, {}));
  UpdateCounts();
  if (running != nullptr) {
    running->set_state(to);
    running->runner().Cancel();
  } else {
    LeaveNow(job, to);
  }
  return changed;
}

void Engine::LeaveNow(const JobRecord& job, JobState state) {
  status_.ShowEnded(job.id, -1, state, JobReason::kNone);
  Forget(job.id);
  StartNext();
}

absl::StatusOr<JobRecord> Engine::PauseNow(const std::string& id,
                                           Memory memory) {
  ASSIGN_OR_RETURN(const JobRecord job, world_.store.Get(id));
  RunningJob* const running = running_.Find(job.id);
  if (job.state == JobState::kPausing || job.state == JobState::kPaused) {
    return StayPaused(job, memory);
  }
  RETURN_IF_ERROR(CheckNotFinal(job, "pause"));
  RETURN_IF_ERROR(transitions_.CheckAsks(job.id));
  if (memory == Memory::kKept && job.state == JobState::kRunning &&
      running != nullptr && running->runner().MayRest()) {
    return kept_.Rest(*running);
  }
  const JobState to =
      running != nullptr ? JobState::kPausing : JobState::kPaused;
  ASSIGN_OR_RETURN(const JobRecord changed, transitions_.Ask(job.id, to, {}));
  queue_.ForgetRoom(id);
  UpdateCounts();
  if (running != nullptr) {
    running->set_state(to);
    running->runner().Pause();
  } else {
    LeaveNow(job, to);
  }
  return changed;
}

// What would go on by itself goes on when it is told to; the next daemon must
// know it, too.
absl::StatusOr<JobRecord> Engine::StayPaused(const JobRecord& job,
                                             Memory memory) {
  // It comes back once the store takes what waits for it.
  if (job.reason == JobReason::kGivesWay) {
    RETURN_IF_ERROR(transitions_.CheckAsks(job.id));
  }
  RunningJob* const running = running_.Find(job.id);
  if (running == nullptr) {
    if (!queue_.WaitsForRoom(job.id)) return job;
    ASSIGN_OR_RETURN(
        JobRecord changed,
        transitions_.Ask(
            job.id, JobDetails{.reason = JobReason::kNone, .message = ""}));
    queue_.ForgetRoom(job.id);
    status_.ShowEnded(job.id, -1, changed.state, changed.reason);
    return changed;
  }
  if (running->spilled()) {
    return kept_.FollowWith(*running, RunningJob::AfterPause::kPaused);
  }
  // One whose save finds no room, and that was resumed meanwhile.
  running->set_after_pause(RunningJob::AfterPause::kPaused);
  const bool may_rest = running->MayRestHeld();
  if (memory == Memory::kGivenBack && job.state == JobState::kPaused &&
      (may_rest || running->runner().resting())) {
    return kept_.GiveBack(*running);
  }
  return may_rest ? kept_.RestHeld(*running) : job;
}

absl::StatusOr<JobRecord> Engine::ResumeNow(const std::string& id) {
  ASSIGN_OR_RETURN(const JobRecord job, world_.store.Get(id));
  RETURN_IF_ERROR(CheckNotFinal(job, "resume"));
  RETURN_IF_ERROR(transitions_.CheckAsks(job.id));
  RunningJob* const kept = running_.Find(job.id);
  if (job.state == JobState::kPausing && kept != nullptr && kept->spilled()) {
    return kept_.FollowWith(*kept, RunningJob::AfterPause::kQueued);
  }
  // Other states lead to QUEUED too, but not on anyone's word.
  if (job.state != JobState::kPaused) {
    return absl::FailedPreconditionError(
        absl::StrCat("a job in state ", JobStateName(job.state),
                     " can't be resumed: it is not PAUSED"));
  }
  if (kept != nullptr) {
    ASSIGN_OR_RETURN(JobRecord changed, kept_.GoOn(*kept));
    // A pause whose save is tried again: as it ends.
    if (changed.state == JobState::kPausing) {
      kept->set_after_pause(RunningJob::AfterPause::kQueued);
    }
    return changed;
  }
  ASSIGN_OR_RETURN(JobRecord changed,
                   transitions_.Ask(job.id, JobState::kQueued, {}));
  queue_.ForgetRoom(id);
  Enqueue(job.id);
  return changed;
}

void Engine::FinishNow(const std::string& id, const Answer& answer) {
  const auto job = CheckFinishable(id);
  if (!job.ok() || job->state == JobState::kFinalizing) return answer(job);
  JobRunner& runner = running_.Find(job->id)->runner();
  const FinishMark mark = {runner.FinishStep(), runner.finishing()};
  // At once: the steps go on while the mark is written.
  runner.FinishAfter(mark.step);
  background_.Run<absl::Status>(
      [path = admission_->paths().FinishMark(*job), step = mark.step] {
        return WriteFinishMark(path, step);
      },
      [this, job = *job, mark, answer](const absl::Status& written) {
        answer(OnFinishMarked(job, mark, written));
      });
}

absl::StatusOr<JobRecord> Engine::CheckFinishable(const std::string& id) const {
  ASSIGN_OR_RETURN(const JobRecord job, world_.store.Get(id));
  if (job.state == JobState::kFinalizing) return job;
  RETURN_IF_ERROR(CheckNotFinal(job, "finish"));
  RETURN_IF_ERROR(transitions_.CheckAsks(job.id));
  RunningJob* const running = running_.Find(job.id);
  const bool stepping = running != nullptr && running->runner().stepping();
  if (job.state == JobState::kRunning && stepping) return job;
  return absl::FailedPreconditionError(absl::StrCat(
      "a job in state ", JobStateName(job.state),
      " can't be finished early: it is ",
      job.state == JobState::kRunning ? "ending already" : "not RUNNING"));
}

// Only what is on disk is answered: another life of the job ends there too.
absl::StatusOr<JobRecord> Engine::OnFinishMarked(const JobRecord& job,
                                                 const FinishMark& mark,
                                                 const absl::Status& written) {
  RunningJob* const running = running_.Find(job.id);
  const bool stepping = running != nullptr && running->runner().stepping();
  if (written.ok()) {
    if (stepping) running->runner().FinishAfter(mark.step);
    if (running != nullptr) {
      running->OnNote(
          absl::StrCat("asked to finish: its last step is ", mark.step));
    }
    return job;
  }
  // An earlier call's mark is on disk, and stays.
  if (stepping && !mark.again) running->runner().ForgetFinish();
  if (!absl::IsResourceExhausted(written)) return written;
  return FieldError(
      written.code(), FieldReason::kStorageFull, "",
      absl::StrCat(std::string(written.message()),
                   stepping ? "; nothing was done"
                            : "; the job had ended its last step meanwhile"));
}

absl::StatusOr<JobRecord> Engine::SetPriorityNow(const std::string& id,
                                                 const PriorityChange& change) {
  ASSIGN_OR_RETURN(JobRecord changed, transitions_.Ask(id, [&] {
    return world_.store.SetPriority(id, change);
  }));
  queue_.SetPriority(id, changed.priority);
  if (RunningJob* const running = running_.Find(id)) {
    running->SetPriority(changed.priority);
  }
  StartNext();
  return changed;
}

absl::Status Engine::CheckTraceable(const std::string& id) {
  ASSIGN_OR_RETURN(const JobRecord job, world_.store.Get(id));
  RunningJob* const running = running_.Find(job.id);
  if (running != nullptr && running->has_steps() &&
      job.state == JobState::kRunning) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "a job in state ", JobStateName(job.state), " can't be traced: it is ",
      job.state == JobState::kRunning ? "ending already" : "not RUNNING"));
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

void Engine::SetCounts(const std::string& id, const DatasetCounts& counts) {
  JobDetails details;
  details.dataset = counts;
  transitions_.Want(id, "what its datasets hold", [this, id, details] {
    return world_.store.SetDetails(id, details);
  });
}

void Engine::EndUntaken(const std::string& id, const absl::Status& status,
                        JobFiles* files) {
  const JobReason reason = ReasonOf(status);
  const std::string message(status.message());
  if (reason != JobReason::kStorageFull && reason != JobReason::kStorageError) {
    return EndJob(id, {reason, message}, JobState::kFailed, files);
  }
  const bool full = reason == JobReason::kStorageFull;
  EndJob(id,
         {reason,
          absl::StrCat(message, full ? kGoesOnWithRoom
                                     : "; it is tried again when resumed")},
         JobState::kPaused, files);
}

void Engine::EndJob(const std::string& id, const TransitionInfo& why,
                    JobState state, JobFiles* files) {
  admission_->admitted().Forget(id);
  const auto end = [this, id, why, state] {
    // Only now: one in another state would be taken out again.
    if (state == JobState::kPaused && why.reason == JobReason::kStorageFull) {
      queue_.WaitForRoom(id, world_.loop.clock().WallTime());
    }
    const auto now = world_.store.Get(id);
    if (state == JobState::kPaused && now.ok() &&
        now->state == JobState::kValidating) {
      // As it is resumed: its data are looked at again where it is QUEUED.
      SetState(id, JobState::kQueued, JobReason::kNone, "");
    }
    SetState(id, state, why.reason, why.message,
             [this, id, state, reason = why.reason] {
               status_.ShowEnded(id, -1, state, reason);
             });
  };
  const auto job = world_.store.Get(id);
  if (!job.ok()) return end();
  const std::string text = absl::StrCat(
      JobStateName(state), " ", JobReasonName(why.reason), ": ", why.message);
  if (files != nullptr) {
    files->Log(text);
    return end();
  }
  log_.Say(admission_->paths().Directory(*job), text,
           [this, id, was = job->state, end] {
             // Somebody may have cancelled or paused it meanwhile.
             const auto now = world_.store.Get(id);
             if (!now.ok() || now->state == was || transitions_.Waits(id)) {
               end();
             }
           });
}

void Engine::Warn(const JobRecord& job, const std::string& what,
                  JobFiles* files) {
  if (files != nullptr) {
    files->Log(WarningText(what));
  } else {
    log_.Say(admission_->paths().Directory(job), WarningText(what));
  }
  StoreWarning(job.id, what);
}

void Engine::StoreWarning(const std::string& id, const std::string& what,
                          const std::function<void()>& over) {
  transitions_.Want(
      id, "a warning",
      [this, id, text = WarningText(what)] {
        return world_.store.AddEvent(id, "note", text);
      },
      over);
}

}  // namespace roundhouse
