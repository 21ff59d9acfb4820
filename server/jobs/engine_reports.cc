// Engine: what running jobs and the workers report, and who is told of it.
#include <sys/statvfs.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "base/version.h"
#include "server/jobs/engine.h"
#include "server/weights/leftovers.h"

namespace roundhouse {
namespace {

constexpr absl::Duration kTick = absl::Seconds(1);
constexpr absl::Duration kMetricsAfterEnd = absl::Minutes(5);

}  // namespace

void Engine::WarnOfData(const JobRecord& job, const std::string& file,
                        const Dataset& data) {
  for (const std::string& warning : data.counts().warnings) {
    Warn(job, absl::StrCat(file, ": ", warning));
  }
}

RunningJob* Engine::FindRunning(const std::string& id) {
  const auto found = running_.find(id);
  return found == running_.end() ? nullptr : found->second.get();
}

void Engine::ForEachRunning(const std::function<void(RunningJob&)>& tell) {
  // What is told may end its job.
  for (auto next = running_.begin(); next != running_.end();) {
    const std::shared_ptr<RunningJob> run = next->second;
    tell(*run);
    next = running_.upper_bound(run->id());
  }
}

void Engine::OnChanged(const std::string& id, JobState state) {
  SetState(id, state, JobReason::kNone, "", [this, id, state] {
    if (RunningJob* const run = FindRunning(id)) run->set_state(state);
  });
}

void Engine::UpdateBusy() {
  const bool busy =
      std::any_of(running_.begin(), running_.end(),
                  [](const auto& entry) { return entry.second->has_steps(); });
  devices_.SetBusy(busy);
  recorder_.SetBusy(busy, MonotonicNs());
}

std::shared_ptr<TraceTask> Engine::TraceJob(const std::string& id,
                                            int64_t steps) {
  auto task = std::make_shared<TraceTask>();
  const absl::Status posted = loop_.Post([this, id, steps, task] {
    const absl::Status traceable = CheckTraceable(id);
    if (traceable.ok()) {
      recorder_.Begin(id, steps, task);
    } else {
      task->Finish(traceable);
    }
  });
  if (!posted.ok()) task->Finish(posted);
  return task;
}

absl::Status Engine::CheckTraceable(const std::string& id) {
  ASSIGN_OR_RETURN(const JobRecord job, store_.Get(id));
  RunningJob* const running = FindRunning(job.id);
  if (running != nullptr && running->has_steps() &&
      job.state == JobState::kRunning) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "a job in state ", JobStateName(job.state), " can't be traced: it is ",
      job.state == JobState::kRunning ? "ending already" : "not RUNNING"));
}

void Engine::OnFinished(const std::string& id, const JobOutcome& outcome) {
  JobState state = outcome.state;
  std::string message = outcome.message;
  const auto job = store_.Get(id);
  const bool asked_to_pause = job.ok() && job->state == JobState::kPausing;
  if (draining_ && state == JobState::kPaused && !asked_to_pause) {
    state = JobState::kRecovering;
    message =
        absl::StrCat("the daemon is stopping; goes on when it starts again",
                     message.empty() ? "" : "; ", message);
  }
  const std::shared_ptr<RunningJob> run = running_.extract(id).mapped();
  const bool drained_held = draining_ && run->held().has_value() &&
                            outcome.state == JobState::kPaused;
  if (drained_held) {
    // It stays PAUSED in the store; the next daemon says what is left of it.
    state = JobState::kPaused;
    message = "the daemon is stopping, and what the job kept goes with it";
  }
  recorder_.OnJobStopped(id, absl::StrCat("the job is ", JobStateName(state)),
                         MonotonicNs());
  UpdateBusy();
  devices_.ForgetJob(id);
  run->files().Log(absl::StrCat(
      JobStateName(state), outcome.reason == JobReason::kNone ? "" : " ",
      JobReasonName(outcome.reason), message.empty() ? "" : ": ", message));
  if (!drained_held) {
    StoreEnd(*run, {state, outcome.reason, message, outcome.output_path});
  }
  if (job.ok() && IsFinal(state)) {
    // Refused when many end at once: the next start sweeps too.
    sweeper_.TryRun(
        [directory = paths_.Directory(*job)] { SweepJobDirectory(directory); });
  }
  loop_.After(kMetricsAfterEnd, [this, id] {
    // It may have been resumed meanwhile.
    if (FindRunning(id) == nullptr) metrics_.DropJob(id);
  });
  // The runner is still on the stack: this holds it until then.
  loop_.After(absl::ZeroDuration(), [this, run] {
    if (draining_ && running_.empty() && drained_) {
      transitions_.TryAll();  // what still waits is taken up from disk
      std::exchange(drained_, nullptr)();
    }
    StartNext();
  });
}

void Engine::StoreEnd(const RunningJob& run, const JobOutcome& end) {
  const std::string& id = run.id();
  if (end.state == JobState::kSucceeded) {
    JobDetails details;
    details.output_path = end.output_path;
    transitions_.Want(id, "where its output is", [this, id, details] {
      return store_.SetDetails(id, details);
    });
  }
  SetState(id, end.state, end.reason, end.message,
           [this, id, color = run.color(), state = end.state,
            reason = end.reason] { ShowEnded(id, color, state, reason); });
  if (end.state != JobState::kPaused || !run.resumed()) return;
  SetState(id, JobState::kQueued, JobReason::kNone, "", [this, id] {
    // Not while the runner that ends is on the stack.
    loop_.After(absl::ZeroDuration(), [this, id] { Enqueue(id); });
  });
}

// --- workers ---

void Engine::OnWorkerUp(WorkerId worker) {
  if (Number(worker) < pool_.device_count()) {
    metrics_.SetDeviceUp(Number(worker), true);
    devices_.OnWorkerUp(static_cast<DeviceId>(Number(worker)));
  }
  ForEachRunning(
      [worker](RunningJob& run) { run.runner().OnWorkerUp(worker); });
  dispatch_.OnWorkerUp(worker);
  if (worker == pool_.FilesWorker()) files_line_.OnWorkerUp();
  sampler_->OnWorkerUp(worker);
}

void Engine::OnMessage(WorkerId worker, const wire::Message& message) {
  const auto* op = std::get_if<wire::HostOpDone>(&message.body);
  if (op != nullptr && options_.samples != nullptr) {
    options_.samples->AddHostOp(*op);
  }
  if (Number(worker) < pool_.device_count()) {
    OnDeviceMessage(static_cast<DeviceId>(Number(worker)), message);
    recorder_.OnDeviceMessage(Number(worker), message, MonotonicNs());
  }
  dispatch_.OnMessage(worker, message);
}

void Engine::OnDeviceMessage(DeviceId device, const wire::Message& message) {
  const wire::Body& body = message.body;
  if (const auto* started = std::get_if<wire::SlotStarted>(&body)) {
    devices_.OnSlotStarted(device, message.attempt, *started);
  } else if (const auto* done = std::get_if<wire::MicroBatchDone>(&body)) {
    devices_.OnMicroBatchDone(device, *done);
  } else if (const auto* sample = std::get_if<wire::SampleDone>(&body)) {
    devices_.OnSampleDone(device, *sample);
  } else if (std::holds_alternative<wire::Withdrawn>(body) ||
             std::holds_alternative<wire::Failed>(body)) {
    devices_.OnGivenUp(device, message.attempt);
  }
}

void Engine::OnWorkerDown(WorkerId worker, const std::string& why) {
  if (Number(worker) < pool_.device_count()) {
    metrics_.SetDeviceUp(Number(worker), false);
    devices_.OnWorkerDown(static_cast<DeviceId>(Number(worker)));
    recorder_.OnWorkerDown(Number(worker), MonotonicNs());
  }
  sampler_->OnWorkerDown(worker);
  ForEachRunning([&why](RunningJob& run) { run.OnNote(why); });
  dispatch_.OnWorkerDown(worker);
}

void Engine::OnStartFailed(WorkerId, const std::string& why) {
  ForEachRunning([&why](RunningJob& run) { run.OnNote(why); });
}

void Engine::OnDeviceLost(DeviceId device, const std::string& why) {
  RH_LOG(kError) << "device " << Number(device) << " is lost: " << why;
  devices_.OnDeviceLost(device);
  recorder_.OnDeviceLost(Number(device), MonotonicNs());
  ForEachRunning([device, &why](RunningJob& run) {
    run.runner().OnDeviceLost(device, why);
  });
  dispatch_.OnDeviceLost(device);
  sampler_->OnDeviceLost();
}

// --- telling ---

void Engine::Tick() {
  devices_.Publish();
  recorder_.Tick();
  arena_used_bytes_ = arena_.used_bytes();
  PublishArena();
  PublishDisk();
  PublishStatus();
  const bool refilled = !reserve_.held() && reserve_.Fill().ok();
  if (std::exchange(start_later_, false) || refilled) StartNext();
  GoOnWithRoom();
  loop_.After(kTick, [this] { Tick(); });
}

void Engine::UpdateCounts() {
  const auto counts = store_.CountByState();
  if (counts.ok()) metrics_.SetJobs(*counts);
}

void Engine::PublishArena() {
  HostUse use;
  for (const auto& [id, run] : running_) {
    const HostUse of_job = run->runner().host_use();
    use.weight_bytes += of_job.weight_bytes;
    use.optimizer_bytes += of_job.optimizer_bytes;
    use.gradient_bytes += of_job.gradient_bytes;
    use.activation_bytes += of_job.activation_bytes;
  }
  const uint64_t known = use.weight_bytes + use.optimizer_bytes +
                         use.gradient_bytes + use.activation_bytes;
  const std::pair<ArenaUse, uint64_t> kinds[] = {
      {ArenaUse::kWeights, use.weight_bytes},
      {ArenaUse::kOptimizer, use.optimizer_bytes},
      {ArenaUse::kGradients, use.gradient_bytes},
      {ArenaUse::kActivations, use.activation_bytes},
      {ArenaUse::kOther, arena_.used_bytes() - known}};
  for (const auto& [kind, bytes] : kinds) {
    metrics_.SetHostArena(kind, static_cast<int64_t>(bytes));
  }
}

void Engine::PublishDisk() {
  struct statvfs disk;
  if (statvfs(options_.state_dir.c_str(), &disk) != 0) return;
  metrics_.SetDiskFree(static_cast<int64_t>(disk.f_bavail * disk.f_frsize));
}

std::vector<DeviceInfo> Engine::Devices() { return devices_.Infos(); }

ServerInfo Engine::Server() {
  ServerInfo info;
  info.version = kVersion;
  info.start_time = start_time_;
  info.host_memory_limit_bytes = static_cast<int64_t>(arena_.limit_bytes());
  info.metrics_address = options_.metrics_address;
  info.host_memory_used_bytes = static_cast<int64_t>(arena_used_bytes_);
  return info;
}

}  // namespace roundhouse
