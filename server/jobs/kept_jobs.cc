#include "server/jobs/kept_jobs.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/byte_text.h"
#include "base/clock.h"
#include "base/status.h"
#include "server/planning/job_needs.h"

namespace roundhouse {
namespace {

// For a disk whose room comes and goes.
constexpr absl::Duration kRetryWithRoom = absl::Seconds(5);
// After a try that failed though there is room: a quota, a limit.
constexpr absl::Duration kFirstHeldRetry = absl::Seconds(30);
constexpr absl::Duration kLongestHeldRetry = absl::Minutes(10);

std::string KeptText(const HeldReport& report, const std::string& disk,
                     absl::Time since) {
  std::string text = absl::StrCat(
      "since ",
      absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", since, absl::UTCTimeZone()),
      ": ", report.why, "; ", ByteText(report.need_bytes), " are needed, ",
      disk, "; it keeps its memory and ");
  absl::StrAppend(
      &text, report.reason == JobReason::kStorageError
                 ? "tries again when it is resumed"
                 : "goes on by itself when there is room, or when resumed");
  absl::StrAppend(&text,
                  "; should the daemon end before, it goes on after step ",
                  report.saved_step);
  return text;
}

// An earlier daemon's word for what is to follow.
JobReason ReasonBefore(RunningJob::AfterPause after) {
  return after == RunningJob::AfterPause::kQueued ? JobReason::kGivesWay
                                                  : JobReason::kNone;
}

std::string StepText(const JobRunner& runner) {
  if (!runner.stepping()) return "";
  return runner.EndsItsStep() ? "; the step that it is in ends first"
                              : "; the step that it is in is made again";
}

std::string RestText(const JobRunner& runner) {
  return absl::StrCat(
      "it keeps its memory and goes on where it is when it is resumed; should "
      "another job need the memory, or the daemon stop, it is saved before; "
      "should the daemon be killed, it goes on after step ",
      runner.saved_step());
}

}  // namespace

void KeptJobs::OnHeld(const std::string& id, const HeldReport& report) {
  RunningJob* const run = world_.running.Find(id);
  if (run->runner().resting()) {  // it is PAUSED already; resumed, it tries
    run->OnNote(absl::StrCat("a checkpoint waits: ", report.why));
    return;
  }
  const auto free_bytes = FreeDiskBytes(report.directory);
  const bool roomy =
      free_bytes.ok() && *free_bytes >= report.need_bytes + kRoomMarginBytes;
  absl::Duration wait =
      run->hold_count() > 1 ? kRetryWithRoom : absl::ZeroDuration();
  if (roomy) {
    const int doublings = std::min(run->hold_count() - 1, 10);
    wait = std::min(kLongestHeldRetry, (1 << doublings) * kFirstHeldRetry);
  }
  run->Wait(world_.loop.clock().WallTime() + wait);
  const std::string message = KeptText(
      report,
      absl::StrCat(free_bytes.ok()
                       ? absl::StrCat(ByteText(*free_bytes), " are free")
                       : std::string("how many are not known"),
                   " in ", report.directory),
      world_.loop.clock().WallTime());
  run->OnNote(
      absl::StrCat("PAUSED ", JobReasonName(report.reason), ": ", message));
  world_.running.recorder().OnJobStopped(id, "the job is PAUSED",
                                         MonotonicNs());
  const TransitionInfo info = {report.reason, message, true};
  world_.transitions.Want(id, JobState::kPaused, info,
                          [this, id, reason = report.reason] {
                            calls_.counts_changed();
                            RunningJob* const kept = world_.running.Find(id);
                            if (kept == nullptr) return;  // it was drained
                            ShowKept(*kept, reason);
                          });
}

void KeptJobs::ShowKept(RunningJob& run, JobReason reason) {
  run.set_state(JobState::kPaused);
  world_.status.ShowEnded(run.id(), run.color(), JobState::kPaused, reason);
  world_.loop.After(absl::ZeroDuration(), calls_.start_next);
}

absl::StatusOr<JobRecord> KeptJobs::Rest(RunningJob& run) {
  const std::string message = RestText(run.runner());
  ASSIGN_OR_RETURN(
      JobRecord changed,
      world_.transitions.Ask(run.id(), JobState::kPaused,
                             {.message = message, .memory_kept = true}));
  calls_.counts_changed();
  run.OnNote(absl::StrCat("PAUSED: ", message));
  world_.running.recorder().OnJobStopped(run.id(), "the job is PAUSED",
                                         MonotonicNs());
  run.Rest(world_.loop.clock().WallTime());
  ShowKept(run, JobReason::kNone);
  return changed;
}

absl::StatusOr<JobRecord> KeptJobs::RestHeld(RunningJob& run) {
  const std::string message = RestText(run.runner());
  ASSIGN_OR_RETURN(
      JobRecord changed,
      world_.transitions.Ask(run.id(), JobDetails{.reason = JobReason::kNone,
                                                  .message = message}));
  run.OnNote(absl::StrCat("told to pause: ", message));
  run.Rest(world_.loop.clock().WallTime());
  ShowKept(run, JobReason::kNone);
  return changed;
}

absl::StatusOr<JobRecord> KeptJobs::Spill(RunningJob& run,
                                          const std::string& reason,
                                          RunningJob::AfterPause after) {
  const std::string why = absl::StrCat(reason, StepText(run.runner()));
  ASSIGN_OR_RETURN(
      JobRecord changed,
      world_.transitions.Ask(run.id(), JobState::kPausing,
                             {.reason = ReasonBefore(after), .message = why}));
  calls_.counts_changed();
  run.OnNote(absl::StrCat("PAUSING: ", why));
  world_.status.HideEnded(run.id());
  run.set_state(JobState::kPausing);
  run.set_after_pause(after);
  run.Spill();
  return changed;
}

absl::StatusOr<JobRecord> KeptJobs::GiveBack(RunningJob& run) {
  return Spill(run, "it is told to give its memory back",
               RunningJob::AfterPause::kPaused);
}

absl::StatusOr<JobRecord> KeptJobs::FollowWith(RunningJob& run,
                                               RunningJob::AfterPause after) {
  ASSIGN_OR_RETURN(JobRecord changed,
                   world_.transitions.Ask(
                       run.id(), JobDetails{.reason = ReasonBefore(after)}));
  run.set_after_pause(after);
  return changed;
}

bool KeptJobs::Spilling() const {
  const auto& jobs = world_.running.jobs();
  return std::any_of(jobs.begin(), jobs.end(), [](const auto& entry) {
    return entry.second->spilled() && !entry.second->held().has_value();
  });
}

std::vector<SpillCandidate> KeptJobs::Candidates() const {
  std::vector<SpillCandidate> candidates;
  for (const auto& [id, run] : world_.running.jobs()) {
    const bool rests = run->runner().resting();
    const bool runs = run->state() == JobState::kRunning ||
                      run->state() == JobState::kLoading;
    const bool stays = (!rests && (!runs || run->held().has_value())) ||
                       world_.transitions.Waits(id);
    const HostNeed& need = run->need();
    candidates.push_back({.stays = stays,
                          .number = *JobNumber(id),
                          .rests = rests,
                          .since = run->rests_since(),
                          .priority = run->priority(),
                          .turn = calls_.turn_of(run->owner()),
                          .bytes = need.total() - need.base_bytes,
                          .base = run->runner().base_key(),
                          .base_bytes = need.base_bytes});
  }
  return candidates;
}

absl::Status KeptJobs::FreeBytes(const SpillNeed& need) {
  if (Spilling()) return absl::OkStatus();  // its memory comes
  return SpillFor(need, "memory");
}

bool KeptJobs::MayFreePlace(Priority priority) const {
  return ChooseSpill(Candidates(), {.priority = priority}).has_value();
}

absl::Status KeptJobs::FreePlace(Priority priority) {
  return SpillFor({.priority = priority}, "place");
}

absl::Status KeptJobs::SpillFor(const SpillNeed& need,
                                const std::string& what) {
  const std::vector<SpillCandidate> candidates = Candidates();
  const auto chosen = ChooseSpill(candidates, need);
  if (!chosen.has_value()) return absl::OkStatus();
  const SpillCandidate& gives = candidates[*chosen];
  RunningJob& run = *world_.running.Find(NameOfJob(gives.number));
  if (gives.rests) {
    return Spill(run, "another job needs its memory: it is saved",
                 RunningJob::AfterPause::kPaused)
        .status();
  }
  return Spill(run,
               absl::StrCat("a job of class ", PriorityName(need.priority),
                            " needs its ", what,
                            ": it is saved, and queued again"),
               RunningJob::AfterPause::kQueued)
      .status();
}

absl::StatusOr<JobRecord> KeptJobs::GoOn(RunningJob& run) {
  const JobState state = run.held()->state;
  if (run.runner().resting() &&
      !(HasPlace() && MayHave(world_.sharing.running, run.owner(),
                              CountOf(world_.running.Owners()), 1))) {
    // Whose turn it is the queue knows, and its jobs have no memory.
    return Spill(run, "as many jobs run as may: it is saved, and queued",
                 RunningJob::AfterPause::kQueued);
  }
  if (state == JobState::kRunning &&
      !MayHave(world_.sharing.running, run.owner(),
               CountOf(world_.running.Owners()), 1)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "as many jobs run as may by running_jobs of the user, the project or "
        "the server (roundhouse limit list); ",
        run.id(), " keeps its memory and goes on when one of them has ended ",
        "and there is room on the disk"));
  }
  if (state == JobState::kRunning && !HasPlace()) {
    return absl::FailedPreconditionError(absl::StrCat(
        world_.max_running_jobs, " jobs run, as many as may ",
        "(--max-running-jobs); ", run.id(), " keeps its memory and goes on ",
        "when one of them has ended and there is room on the disk"));
  }
  ASSIGN_OR_RETURN(JobRecord changed,
                   world_.transitions.Ask(run.id(), state, {}));
  calls_.counts_changed();
  world_.status.HideEnded(run.id());
  run.set_state(state);
  run.GoOn();
  return changed;
}

void KeptJobs::GoOnIfRoom(RunningJob& run) {
  const auto& held = run.held();
  if (!held.has_value() || held->reason == JobReason::kStorageError ||
      run.runner().resting() || world_.transitions.Waits(run.id()) ||
      run.state() != JobState::kPaused ||
      world_.loop.clock().WallTime() < run.next_try() ||
      (held->state == JobState::kRunning && !HasPlace())) {
    return;
  }
  const auto free_bytes = FreeDiskBytes(held->directory);
  if (!free_bytes.ok() || *free_bytes < held->need_bytes + kRoomMarginBytes) {
    return;
  }
  // Where it cannot go on now, the next look tries again.
  GoOn(run).status().IgnoreError();
}

void KeptJobs::GoOnWithRoom() {
  world_.running.ForEach([this](RunningJob& run) { GoOnIfRoom(run); });
}

}  // namespace roundhouse
