// Engine: jobs that wait with their memory, for what they save can't be
// written.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/byte_text.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "server/jobs/engine.h"

namespace roundhouse {
namespace {

// Beside what a job saves: names, the job store, logs.
constexpr uint64_t kRoomMarginBytes = uint64_t{16} << 20;
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

}  // namespace

bool Engine::HasPlace() const {
  return running_.PlacesTaken() < options_.max_running_jobs;
}

void Engine::OnHeld(const std::string& id, const HeldReport& report) {
  RunningJob* const run = running_.Find(id);
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
  running_.recorder().OnJobStopped(id, "the job is PAUSED", MonotonicNs());
  const TransitionInfo info = {report.reason, message, true};
  transitions_.Want(
      id, JobState::kPaused, info, [this, id, reason = report.reason] {
        UpdateCounts();
        RunningJob* const kept = running_.Find(id);
        if (kept == nullptr) return;  // it was drained
        kept->set_state(JobState::kPaused);
        status_.ShowEnded(id, kept->color(), JobState::kPaused, reason);
        world_.loop.After(absl::ZeroDuration(), [this] { StartNext(); });
      });
}

absl::StatusOr<JobRecord> Engine::GoOn(RunningJob& run) {
  const JobState state = run.held()->state;
  if (state == JobState::kRunning &&
      !MayHave(sharing_.running, run.owner(), CountOf(running_.Owners()), 1)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "as many jobs run as may by running_jobs of the user, the project or "
        "the server (roundhouse limit list); ",
        run.id(), " keeps its memory and goes on when one of them has ended ",
        "and there is room on the disk"));
  }
  if (state == JobState::kRunning && !HasPlace()) {
    return absl::FailedPreconditionError(absl::StrCat(
        options_.max_running_jobs, " jobs run, as many as may ",
        "(--max-running-jobs); ", run.id(), " keeps its memory and goes on ",
        "when one of them has ended and there is room on the disk"));
  }
  ASSIGN_OR_RETURN(JobRecord changed, transitions_.Ask(run.id(), state, {}));
  UpdateCounts();
  status_.HideEnded(run.id());
  run.set_state(state);
  run.GoOn();
  return changed;
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
  const bool queued = job.ok() && job->state == JobState::kQueued;
  if (transitions_.Waits(id) || queued ||
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

void Engine::GoOnWithRoom() {
  if (phase_ == Phase::kDraining || !reserve_.held()) return;
  QueueWithRoom();
  running_.ForEach([this](RunningJob& run) { GoOnIfRoom(run); });
}

void Engine::GoOnIfRoom(RunningJob& run) {
  const auto& held = run.held();
  if (!held.has_value() || held->reason == JobReason::kStorageError ||
      transitions_.Waits(run.id()) || run.state() != JobState::kPaused ||
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

}  // namespace roundhouse
