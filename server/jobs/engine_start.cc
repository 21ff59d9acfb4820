// Engine: how the first of the queue begins to run.
#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/model/family.h"
#include "base/status.h"
#include "server/admission/job_data.h"
#include "server/explain/measured_work.h"
#include "server/job/storage_reason.h"
#include "server/jobs/engine.h"
#include "server/weights/tokenizer_copy.h"

namespace roundhouse {
namespace {

// Whole hours of devices, by user, project and all.
OwnerUse HoursOf(const RecentUse::Week& week) {
  std::map<std::string, double> users, projects;
  double all = 0;
  for (const auto& [owner, ns] : week) {
    projects[owner.first] += ns;
    users[owner.second] += ns;
    all += ns;
  }
  const auto hours = [](double ns) {
    return static_cast<int64_t>(std::min(ns / 3600e9, 9e18));
  };
  OwnerUse used{.all = hours(all)};
  for (const auto& [name, ns] : users) used.users[name] = hours(ns);
  for (const auto& [name, ns] : projects) used.projects[name] = hours(ns);
  return used;
}

}  // namespace

void Engine::Forget(const std::string& id) {
  queue_.Remove(id);
  validations_.Forget(id);
  opener_.Forget(id);
  admission_->admitted().Forget(id);
}

JobQueue::Queued Engine::QueuedNow(const std::string& id) const {
  JobQueue::Queued queued{.id = id, .since = world_.loop.clock().WallTime()};
  const auto job = world_.store.Get(id);
  if (!job.ok()) {
    RH_LOG(kWarning) << id << " waits as a normal job: " << job.status();
    return queued;
  }
  queued.owner = {job->project, job->owner};
  queued.priority = job->priority;
  queued.work = PoolOutlook::WorkOf(*job);
  const AdmittedJobs::Job admitted = admission_->admitted().Kept(id);
  if (admitted != nullptr && admitted->host.ok()) {
    queued.host_bytes = admitted->host->total();
  }
  return queued;
}

void Engine::Enqueue(const std::string& id) {
  queue_.Add(QueuedNow(id));
  status_.HideEnded(id);
  UpdateCounts();
  StartNext();
}

void Engine::StartNext() {
  if (phase_ != Phase::kServing) return;
  validations_.QueueThoseReady();
  // A job that begins on a full disk only finds out later.
  if (!reserve_.held() || !validations_.MayTakeUp()) return;
  validations_.Start();
  GoOnWithRoom();  // what kept its memory goes first
  StartFromQueue();
}

JobQueue::TurnOf Engine::Turns() const {
  return [this](const JobOwner& owner) {
    const RecentUse& recent = usage_.recent();
    const ShareWeights& weights = sharing_.weights;
    return JobQueue::Turn{
        recent.OfProject(owner.project) / weights.OfProject(owner.project),
        recent.OfUser(owner) / weights.OfUser(owner.user)};
  };
}

const JobQueue::Queued* Engine::NextQueued() {
  const auto may = [this, used = UsedNow()](const JobQueue::Queued& queued) {
    return MayStart(sharing_, queued.owner, used,
                    queued.host_bytes.value_or(0));
  };
  const JobQueue::Queued* const first = queue_.First(Turns(), may);
  const JobQueue::Queued* const opening = queue_.Find(opener_.opening());
  if (opening != nullptr && opening->id == ahead_.job) return first;
  const bool stays = first != nullptr && opening != nullptr &&
                     first->priority == opening->priority && may(*opening) &&
                     GoesOnOpening(opening->id);
  return stays ? opening : first;
}

SharedUse Engine::UsedNow() const {
  SharedUse used{.running = CountOf(running_.Owners()),
                 .host_bytes = running_.HostNeeds()};
  if (!sharing_.gpu_hours.empty()) {
    used.gpu_hours = HoursOf(usage_.recent().week_ns());
  }
  return used;
}

bool Engine::NeedsTooMuch(const JobQueue::Queued& queued) {
  if (queued.host_bytes.has_value()) return false;
  const auto found = opener_.Find(queued.id);
  if (!found.has_value() || !found->ok() || !(**found)->host.ok()) return false;
  const uint64_t bytes = (**found)->host->total();
  queue_.SetHostBytes(queued.id, bytes);
  return !MayStart(sharing_, queued.owner, UsedNow(), bytes);
}

bool Engine::GoesOnOpening(const std::string& id) {
  if (!opener_.opened()) return true;
  // It was to start now; its memory may be gone meanwhile.
  const auto found = opener_.Find(id);
  return !found.has_value() || !found->ok() || Fits(***found);
}

void Engine::StartFromQueue() {
  while (const JobQueue::Queued* const next = NextQueued()) {
    JobQueue::Queued queued = *next;
    const std::string& id = queued.id;
    if (!kept_.HasPlace()) return TakePlace(queued);
    if (NeedsTooMuch(queued)) continue;
    if (MakeRoom(queued)) {
      ahead_.job.clear();
    } else {
      const JobQueue::Queued* const ahead = WhoGoesAhead(queued);
      if (ahead == nullptr) return;
      queued = *ahead;
    }
    std::optional<OpenedJob> opened = opener_.Take(id);
    if (!opened.has_value()) return;
    // MakeRoom may have found a model that could not be read just then.
    if (opened->admitted.ok() &&
        !MakeRoomFor(**opened->admitted, queued.priority)) {
      return;
    }
    const absl::Status data = opened->data;
    if (absl::IsResourceExhausted(data)) {  // damaged, and no room for others
      queue_.Remove(id);
      EndUntaken(id, data);
      continue;
    }
    const absl::Status status =
        data.ok() ? StartJob(queued, *std::move(opened)) : data;
    if (status.ok()) continue;
    if (absl::IsResourceExhausted(status) || absl::IsUnavailable(status)) {
      start_later_ = true;  // with the next tick
      return;
    }
    queue_.Remove(id);
    EndUntaken(id, status);
  }
}

uint64_t Engine::SharedBytes(const AdmittedJob& job) {
  const bool shares = job.host.ok() && job.host->base_bytes > 0 &&
                      running_.bases().Has(job.base_key);
  return shares ? job.host->base_bytes : 0;
}

uint64_t Engine::BytesOf(const AdmittedJob& job) {
  return job.host->total() - SharedBytes(job) + running_.TableBytes() +
         kRoundingBytes;
}

bool Engine::Fits(const AdmittedJob& job) {
  if (!job.host.ok()) return true;  // it fails as it starts
  return BytesOf(job) <= world_.arena.largest_gap_bytes();
}

void Engine::TakePlace(const JobQueue::Queued& queued) {
  if (!kept_.MayFreePlace(queued.priority)) return;
  // Nobody gives way to one that is not ready.
  const auto found = opener_.Find(queued.id);
  if (!found.has_value() || !found->ok()) return;
  const absl::Status freed = kept_.FreePlace(queued.priority);
  if (freed.ok()) {
    // Not while StartFromQueue looks.
    world_.loop.After(absl::ZeroDuration(), [this] { StartNext(); });
  } else {
    start_later_ = true;
  }
}

bool Engine::MakeRoom(const JobQueue::Queued& queued) {
  const auto found = opener_.Find(queued.id);
  if (!found.has_value()) return false;
  if (!found->ok()) return true;  // it is read again, or fails as it starts
  return MakeRoomFor(***found, queued.priority);
}

bool Engine::MakeRoomFor(const AdmittedJob& job, Priority priority) {
  bool fits = Fits(job);
  if (!fits && running_.bases().DropUnused()) fits = Fits(job);
  if (fits) return true;
  if (world_.arena.frees_later() || running_.FreesMemory()) return false;
  if (running_.empty() && !sampler_->holds_memory()) return true;
  if (sampler_->holds_memory()) sampler_->GiveWay([this] { StartNext(); });
  const uint64_t bytes = BytesOf(job);
  const uint64_t free = world_.arena.free_bytes();
  // Free memory may be in pieces.
  start_later_ |=
      !kept_
           .FreeBytes({.priority = priority,
                       .bytes = bytes > free ? bytes - free : 1,
                       .base = SharedBytes(job) > 0 ? job.base_key : ""})
           .ok();
  return false;
}

absl::Status Engine::StartJob(const JobQueue::Queued& queued,
                              OpenedJob opened) {
  const absl::Status files = opened.files.status();
  if (absl::IsInternal(files)) return OfDisk(files);
  RETURN_IF_ERROR(files);
  // A job that was cancelled or is not on disk must not run.
  ASSIGN_OR_RETURN(const JobRecord loading,
                   transitions_.Ask(queued.id, JobState::kLoading, {}));
  opened.job.priority = loading.priority;  // it was opened some time ago
  queue_.Remove(queued.id);
  UpdateCounts();
  world_.metrics.ObserveQueueWait(
      loading.priority, world_.loop.clock().WallTime() - queued.since);
  const absl::Status begun = LoadJob(opened);
  admission_->admitted().Forget(queued.id);
  if (!begun.ok()) EndUntaken(queued.id, begun, opened.files->get());
  return absl::OkStatus();
}

absl::Status Engine::LoadJob(OpenedJob& opened) {
  const JobRecord& job = opened.job;
  RETURN_IF_ERROR(ResolvedSpec::FromJson(job.resolved).status());
  const absl::Status admitted = opened.admitted.status();
  if (MayPass(admitted)) return OfDisk(admitted);
  if (!admitted.ok()) {  // files changed since the job was submitted
    EndJob(job.id, {JobReason::kInvalidModel, std::string(admitted.message())},
           JobState::kFailed, opened.files->get());
    return absl::OkStatus();
  }
  if (opened.counted.has_value()) {
    for (const std::string& warning : opened.counted->warnings) {
      Warn(job, warning, opened.files->get());
    }
    RETURN_IF_ERROR(opened.counted->counts.status());
    SetCounts(job.id, *opened.counted->counts);
  }
  if (!opened.finish_step.ok()) {
    Warn(job,
         absl::StrCat(std::string(opened.finish_step.status().message()),
                      ": the job was asked to finish early and goes on to its "
                      "last step; finish it once more"),
         opened.files->get());
  }
  RETURN_IF_ERROR(opened.datasets.status());
  const AdmittedJob& what = **opened.admitted;
  const auto run =
      std::make_shared<RunningJob>(WorldOfJob(), job, *std::move(opened.files));
  // Without one the runner fails the job.
  if (what.host.ok()) run->set_need(*what.host);
  run->SetWork(WorkOf(job.resolved), StepsOf(job));
  run->SetData(std::move(opened.datasets->train),
               std::move(opened.datasets->validation));
  world_.metrics.SetJobInfo(
      job.id,
      {.user = job.owner,
       .model = FamilyOf(what.model.config.architecture).model_type,
       .method =
           what.spec.spec().method == TrainingMethod::kLora ? "lora" : "full"});
  run->SetRunner(std::make_unique<JobRunner>(
      JobRunner::Surroundings{world_.loop, world_.arena, world_.pool,
                              running_.dispatch()},
      OptionsOfJob(opened, *run), *run, run->telemetry()));
  if (opened.finish_step.ok() && opened.finish_step->has_value()) {
    run->runner().FinishAfter(**opened.finish_step);
  }
  run->set_color(StatusPublisher::ChooseColor(job.id, running_));
  run->files().Log(absl::StrCat("starting ", job.id));
  running_.Add(run);
  run->runner().Start();
  return absl::OkStatus();
}

RunningJob::World Engine::WorldOfJob() {
  return {
      .store = world_.store,
      .transitions = transitions_,
      .metrics = world_.metrics,
      .devices = running_.devices(),
      .recorder = running_.recorder(),
      .samples = options_.samples,
      .steps_changed = [this] { running_.UpdateBusy(); },
      .changed = [this](const std::string& id,
                        JobState state) { OnChanged(id, state); },
      .held = [this](const std::string& id,
                     const HeldReport& report) { kept_.OnHeld(id, report); },
      .finished = [this](
                      const std::string& id,
                      const JobOutcome& outcome) { OnFinished(id, outcome); }};
}

RunnerOptions Engine::OptionsOfJob(const OpenedJob& opened,
                                   const RunningJob& run) {
  const JobRecord& job = opened.job;
  const AdmittedJob& admitted = **opened.admitted;
  const std::string directory = admission_->paths().Directory(job);
  const std::string& model = admitted.model.path;
  const GivenFiles given = [directory, model] {
    return GiveTokenizerCopy(directory, model);
  };
  return {.job = static_cast<uint64_t>(*JobNumber(job.id)),
          .owner = {job.project, job.owner},
          .priority = job.priority,
          .uid = job.uid,
          .directory = directory,
          .output_path = admission_->paths().Output(job),
          .spec = admitted.spec,
          .files = &admission_->roots(),
          .sources = opened.sources,
          .model = admitted.model,
          .base = opened.base,
          .adapter = admitted.adapter,
          .bases = &running_.bases(),
          .base_key = opened.base_key,
          .files_line = &running_.files_line(),
          .train = &run.train(),
          .dataset_sha256 =
              job.dataset.has_value() ? job.dataset->sha256 : std::string(),
          .validation = run.validation(),
          .text = admission_->helpers().Text(
              admitted.spec.spec(), run.train().counts().chat_template, given),
          .device = options_.device};
}

}  // namespace roundhouse
