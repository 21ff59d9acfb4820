// Engine: what running jobs report, and what is told once a second.
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "server/job/storage_reason.h"
#include "server/jobs/engine.h"
#include "server/store/disk_reserve.h"
#include "server/weights/leftovers.h"

namespace roundhouse {
namespace {

constexpr absl::Duration kTick = absl::Seconds(1);
constexpr absl::Duration kMetricsAfterEnd = absl::Minutes(5);

void PublishDisk(const std::string& directory, ServerMetrics& metrics) {
  const auto free = FreeDiskBytes(directory);
  if (free.ok()) metrics.SetDiskFree(static_cast<int64_t>(*free));
}

}  // namespace

void Engine::OnChanged(const std::string& id, JobState state) {
  SetState(id, state, JobReason::kNone, "", [this, id, state] {
    if (RunningJob* const run = running_.Find(id)) run->set_state(state);
  });
}

void Engine::OnFinished(const std::string& id, const JobOutcome& outcome) {
  const bool draining = phase_ == Phase::kDraining;
  JobState state = outcome.state;
  std::string message = outcome.message;
  const auto job = world_.store.Get(id);
  const bool asked_to_pause = job.ok() && job->state == JobState::kPausing;
  if (draining && state == JobState::kPaused && !asked_to_pause) {
    state = JobState::kRecovering;
    message =
        absl::StrCat("the daemon is stopping; goes on when it starts again",
                     message.empty() ? "" : "; ", message);
  }
  const std::shared_ptr<RunningJob> run = running_.Take(id);
  const bool drained_held =
      draining && run->held().has_value() && outcome.state == JobState::kPaused;
  if (drained_held) {
    // It stays PAUSED in the store; the next daemon says what is left of it.
    state = JobState::kPaused;
    message =
        run->held()->reason == JobReason::kNone
            ? "the daemon is stopping; what the job kept is saved"
            : "the daemon is stopping, and what the job kept goes with it";
  }
  running_.recorder().OnJobStopped(
      id, absl::StrCat("the job is ", JobStateName(state)), MonotonicNs());
  running_.UpdateBusy();
  running_.devices().ForgetJob(id);
  outlook_.OnEnded(*run, state);
  run->files().Log(absl::StrCat(
      JobStateName(state), outcome.reason == JobReason::kNone ? "" : " ",
      JobReasonName(outcome.reason), message.empty() ? "" : ": ", message));
  const bool waits = state == JobState::kPaused && !asked_to_pause &&
                     absl::EndsWith(message, kGoesOnWithRoom);
  waits ? queue_.WaitForRoom(id, world_.loop.clock().WallTime())
        : queue_.ForgetRoom(id);
  if (!drained_held) {
    StoreEnd(*run, {state, outcome.reason, message, outcome.output_path});
  }
  if (job.ok() && IsFinal(state)) {
    // Refused when many end at once: the next start sweeps too.
    sweeper_.TryRun([directory = admission_->paths().Directory(*job)] {
      SweepJobDirectory(directory);
    });
  }
  world_.loop.After(kMetricsAfterEnd, [this, id] {
    // It may have been resumed meanwhile.
    if (running_.Find(id) == nullptr) world_.metrics.DropJob(id);
  });
  // The runner is still on the stack: this holds it until then.
  world_.loop.After(
      absl::ZeroDuration(), [this, last = std::shared_ptr(run)]() mutable {
        last.reset();
        usage_.Flush();
        if (phase_ == Phase::kDraining && running_.empty() && drained_) {
          transitions_.TryAll();  // what still waits is taken up from disk
          EndDrain();
        }
        StartNext();
      });
}

void Engine::EndDrain() {
  usage_.Flush();
  std::exchange(drained_, nullptr)();
}

void Engine::StoreEnd(const RunningJob& run, const JobOutcome& end) {
  const std::string& id = run.id();
  if (end.state == JobState::kSucceeded) {
    JobDetails details;
    details.output_path = end.output_path;
    transitions_.Want(id, "where its output is", [this, id, details] {
      return world_.store.SetDetails(id, details);
    });
  }
  const bool comes_back = end.state == JobState::kPaused &&
                          run.after_pause() == RunningJob::AfterPause::kQueued;
  const JobReason reason = comes_back && end.reason == JobReason::kNone
                               ? JobReason::kGivesWay
                               : end.reason;
  SetState(id, end.state, reason, end.message,
           [this, id, color = run.color(), state = end.state, reason] {
             status_.ShowEnded(id, color, state, reason);
           });
  if (!comes_back) return;
  SetState(id, JobState::kQueued, JobReason::kNone, "",
           [this, id, rested = run.rested()] {
             // Not while the runner that ends is on the stack.
             world_.loop.After(absl::ZeroDuration(), [this, id, rested] {
               rested ? Enqueue(id) : QueueAgain(id);
             });
           });
}

// --- telling ---

void Engine::UpdateCounts() {
  const auto counts = world_.store.CountByState();
  if (counts.ok()) world_.metrics.SetJobs(*counts);
}

void Engine::Tick() {
  device_keeper_.Look();
  running_.devices().Publish();
  outlook_.Tick(sharing_.weights);
  running_.recorder().Tick();
  status_.SetHostUsed(world_.arena.used_bytes());
  running_.PublishArena(world_.arena.used_bytes());
  running_.PublishUsers(queue_.Owners(), sharing_.weights);
  start_later_ |= usage_.Tick(running_.HostHolders());
  PublishDisk(options_.state_dir, world_.metrics);
  status_.Publish({.running = running_,
                   .keeper = device_keeper_,
                   .queue = queue_,
                   .turn_of = Turns(),
                   .validating = validations_.count(),
                   .stopping = phase_ == Phase::kDraining});
  FillReserve();
  log_.TryAgain();
  if (std::exchange(start_later_, false)) StartNext();
  GoOnWithRoom();
  world_.loop.After(kTick, [this] { Tick(); });
}

// Beside the loop: it writes megabytes.
void Engine::FillReserve() {
  if (reserve_.held() || std::exchange(filling_, true)) return;
  background_.Run<absl::Status>(
      [&reserve = reserve_] { return reserve.Fill(); },
      [this](const absl::Status& filled) {
        filling_ = false;
        if (filled.ok()) StartNext();
      });
}

}  // namespace roundhouse
