#include "server/jobs/engine.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <future>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/model/family.h"
#include "base/status.h"

namespace roundhouse {
namespace {

// Of a job that could not be validated or started.
JobReason ReasonOf(const absl::Status& status) {
  const absl::StatusCode code = status.code();
  return code == absl::StatusCode::kInvalidArgument ? JobReason::kInvalidDataset
         : code == absl::StatusCode::kResourceExhausted
             ? JobReason::kStorageFull
             : JobReason::kInternal;
}

// What a finish of an earlier life of the job left; none: nullopt.
absl::StatusOr<std::optional<int64_t>> ReadFinishStep(const std::string& path) {
  std::ifstream file(path);
  if (!file.is_open()) return std::nullopt;
  int64_t step = 0;
  if (file >> step && step > 0) return step;
  return absl::InternalError(absl::StrCat(path, ": holds no step"));
}

// A job by epochs knows its steps only now.
absl::Status CheckStepsLeft(const JobSpec& spec, int64_t rows) {
  if (spec.resume_from_checkpoint.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const CheckpointManifest manifest,
                   ReadCheckpoint(spec.resume_from_checkpoint, false));
  const int64_t steps = TotalSteps(spec, rows);
  if (manifest.step < steps) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("resume_from_checkpoint: ", spec.resume_from_checkpoint,
                   ": step ", manifest.step, " is not below the ", steps,
                   " steps of the job (", spec.num_train_epochs, " epochs of ",
                   rows, " ", spec.packing ? "packed rows" : "sequences", ")"));
}

}  // namespace

Engine::Engine(const EngineOptions& options, EventLoop& loop, HostArena& arena,
               WorkerPool& pool, JobStore& store, ServerMetrics& metrics)
    : options_(options),
      loop_(loop),
      arena_(arena),
      pool_(pool),
      store_(store),
      metrics_(metrics),
      hub_(options.hf_cache),
      bases_(arena),
      dispatch_(loop, pool, options.peers),
      devices_(pool, metrics,
               {.memory_bytes = options.device.bytes,
                .threads = options.device_threads,
                .link_gbps = options.link_gbps,
                .samples = options.samples}) {
  metrics_.SetHostArenaLimit(static_cast<int64_t>(arena.limit_bytes()));
  arena_used_bytes_ = arena.used_bytes();
  arena_.OnFreedLater([this] { StartNext(); });
}

Engine::~Engine() = default;

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(
    const EngineOptions& options, EventLoop& loop, HostArena& arena,
    WorkerPool& pool, JobStore& store, ServerMetrics& metrics) {
  auto engine = std::unique_ptr<Engine>(
      new Engine(options, loop, arena, pool, store, metrics));
  // Checkpoints and outputs of this server's jobs can be named too.
  DataRootsOptions roots = {.roots = options.data_roots,
                            .hub_cache = options.hf_cache};
  for (const char* own : {"/jobs", "/outputs"}) {
    std::error_code error;
    std::filesystem::create_directories(options.state_dir + own, error);
    roots.own.push_back(options.state_dir + own);
  }
  ASSIGN_OR_RETURN(engine->roots_, DataRoots::Create(roots));
  Engine* const self = engine.get();
  engine->exporter_ = std::make_unique<Exporter>(
      loop, pool, *self->roots_, options.state_dir + "/export-in-progress",
      [self](const ExportRequest& request) {
        return self->PlanExportOf(request);
      });
  const std::filesystem::path scripts =
      std::filesystem::path(options.prepare_script).parent_path();
  engine->sampler_ = std::make_unique<Sampler>(
      loop, arena, pool, engine->bases_,
      SamplerOptions{
          .program = {options.python, scripts / "prepare_sample.py"},
          .open = [self](const std::string& m) { return self->OpenSample(m); },
          .reserved_bytes = [self] { return self->TableBytes(); }});
  return engine;
}

std::string Engine::JobDirectory(const JobRecord& job) const {
  return absl::StrCat(options_.state_dir, "/jobs/", job.uid);
}

std::string Engine::OutputPath(const JobRecord& job) const {
  return absl::StrCat(options_.state_dir, "/outputs/",
                      job.output_name.empty() ? job.id : job.output_name);
}

std::string Engine::FinishPath(const JobRecord& job) const {
  return JobDirectory(job) + "/finish-after-step";
}

// --- taking up and ending ---

absl::Status Engine::Recover() {
  const std::vector<JobState> unfinished = {
      JobState::kValidating, JobState::kQueued,    JobState::kLoading,
      JobState::kRunning,    JobState::kPausing,   JobState::kRecovering,
      JobState::kFinalizing, JobState::kCancelling};
  std::vector<JobRecord> jobs;
  std::optional<int64_t> before;
  do {
    ASSIGN_OR_RETURN(const JobPage page, store_.List(unfinished, before, 500));
    jobs.insert(jobs.end(), page.jobs.begin(), page.jobs.end());
    before = page.next_before;
  } while (before.has_value());
  std::reverse(jobs.begin(), jobs.end());  // oldest first
  for (const JobRecord& job : jobs) {
    switch (job.state) {
      case JobState::kValidating:
        to_validate_.push_back(job.id);
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
      default:
        if (job.state != JobState::kRecovering) {
          SetState(job.id, JobState::kRecovering, JobReason::kNone,
                   "the daemon was restarted");
        }
        SetState(job.id, JobState::kQueued, JobReason::kNone, "");
        queue_.push_back({job.id, absl::Now()});
    }
  }
  UpdateCounts();
  Tick();
  StartNext();
  return absl::OkStatus();
}

void Engine::Drain(std::function<void()> drained) {
  draining_ = true;
  drained_ = std::move(drained);
  preparer_.reset();
  prompt_check_.reset();
  exporter_->Stop();
  sampler_->Stop();
  if (running_.empty()) {
    std::exchange(drained_, nullptr)();
    return;
  }
  for (const auto& run : AllRunning()) run->runner().Pause();
}

// --- commands ---

absl::StatusOr<JobRecord> Engine::OnLoop(
    std::function<absl::StatusOr<JobRecord>()> change) {
  auto promise = std::make_shared<std::promise<absl::StatusOr<JobRecord>>>();
  auto answer = promise->get_future();
  RETURN_IF_ERROR(
      loop_.Post([promise, change] { promise->set_value(change()); }));
  return answer.get();
}

absl::StatusOr<JobRecord> Engine::Cancel(const std::string& id) {
  return OnLoop([this, id] { return CancelNow(id); });
}

absl::StatusOr<JobRecord> Engine::Pause(const std::string& id) {
  return OnLoop([this, id] { return PauseNow(id); });
}

absl::StatusOr<JobRecord> Engine::Resume(const std::string& id) {
  return OnLoop([this, id] { return ResumeNow(id); });
}

absl::StatusOr<JobRecord> Engine::Finish(const std::string& id) {
  return OnLoop([this, id] { return FinishNow(id); });
}

absl::StatusOr<JobRecord> Engine::CancelNow(const std::string& id) {
  ASSIGN_OR_RETURN(const JobRecord job, store_.Get(id));
  if (job.state == JobState::kCancelling || job.state == JobState::kCancelled) {
    return job;
  }
  RunningJob* const running = FindRunning(job.id);
  const JobState to =
      running != nullptr ? JobState::kCancelling : JobState::kCancelled;
  ASSIGN_OR_RETURN(const JobRecord changed, store_.Transition(job.id, to, {}));
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
  ASSIGN_OR_RETURN(const JobRecord job, store_.Get(id));
  if (job.state == JobState::kPausing || job.state == JobState::kPaused) {
    return job;
  }
  RunningJob* const running = FindRunning(job.id);
  const JobState to =
      running != nullptr ? JobState::kPausing : JobState::kPaused;
  ASSIGN_OR_RETURN(const JobRecord changed, store_.Transition(job.id, to, {}));
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
  ASSIGN_OR_RETURN(const JobRecord job, store_.Get(id));
  // Other states lead to QUEUED too, but not on anyone's word.
  if (job.state != JobState::kPaused) {
    return absl::FailedPreconditionError(
        absl::StrCat("a job in state ", JobStateName(job.state),
                     " can't be resumed: it is not PAUSED"));
  }
  ASSIGN_OR_RETURN(JobRecord changed,
                   store_.Transition(job.id, JobState::kQueued, {}));
  Enqueue(job.id);
  return changed;
}

absl::StatusOr<JobRecord> Engine::FinishNow(const std::string& id) {
  ASSIGN_OR_RETURN(const JobRecord job, store_.Get(id));
  if (job.state == JobState::kFinalizing) return job;
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
  RETURN_IF_ERROR(
      WriteFileAtomically(FinishPath(job), absl::StrCat(step, "\n")));
  running->runner().FinishAfter(step);
  running->OnNote(absl::StrCat("asked to finish: its last step is ", step));
  return job;
}

void Engine::Forget(const std::string& id) {
  std::erase_if(queue_, [&](const Queued& job) { return job.id == id; });
  std::erase(to_validate_, id);
  if (validating_ == id) {
    preparer_.reset();
    prompt_check_.reset();
    validating_.clear();
  }
}

void Engine::Enqueue(const std::string& id) {
  queue_.push_back({id, absl::Now()});
  std::erase_if(ended_, [&](const StatusEnded& job) { return job.id == id; });
  UpdateCounts();
  StartNext();
}

void Engine::SetState(const std::string& id, JobState state, JobReason reason,
                      const std::string& message) {
  const auto changed = store_.Transition(id, state, {reason, message});
  if (!changed.ok()) {
    RH_LOG(kError) << id << " to " << JobStateName(state) << ": "
                   << changed.status();
  }
  UpdateCounts();
}

void Engine::FailJob(const std::string& id, JobReason reason,
                     const std::string& message) {
  const auto job = store_.Get(id);
  if (job.ok()) {
    const auto files = JobFiles::Open(JobDirectory(*job));
    if (files.ok()) {
      (*files)->Log(
          absl::StrCat("FAILED ", JobReasonName(reason), ": ", message));
    }
  }
  SetState(id, JobState::kFailed, reason, message);
  ShowEnded(id, -1, JobState::kFailed, reason);
}

// --- validation ---

void Engine::StartNext() {
  if (draining_) return;
  while (validating_.empty() && !to_validate_.empty()) {
    const std::string id = to_validate_.front();
    to_validate_.pop_front();
    StartValidation(id);
  }
  while (!queue_.empty() &&
         static_cast<int>(running_.size()) < options_.max_running_jobs) {
    const Queued queued = queue_.front();
    if (!MakeRoom(queued.id)) return;
    queue_.pop_front();
    const absl::Status status = StartJob(queued);
    if (status.ok()) continue;
    FailJob(queued.id, ReasonOf(status), std::string(status.message()));
  }
}

void Engine::StartValidation(const std::string& id) {
  const auto job = store_.Get(id);
  // It may have been cancelled between its creation and now.
  if (!job.ok() || job->state != JobState::kValidating) return;
  const auto spec = ResolvedSpec::FromJson(job->resolved);
  if (!spec.ok()) {
    FailJob(id, JobReason::kInternal, std::string(spec.status().message()));
    return;
  }
  validating_ = id;
  const JobSpec& job_spec = spec->spec();
  PreparerOptions options;
  options.program = {options_.python, options_.prepare_script};
  options.reading = {.tokenizer_directory = job_spec.model_name_or_path,
                     .data_file = job_spec.dataset,
                     .max_length = job_spec.max_length,
                     .truncation = TruncationName(job_spec.truncation),
                     .packing = job_spec.packing,
                     .seed = job_spec.seed,
                     .template_date = job_spec.template_date};
  options.validation_file = job_spec.validation_dataset;
  options.output_directory = JobDirectory(*job) + "/data";
  options.cache_directory = options_.state_dir + "/datasets";
  preparer_ = Preparer::Start(loop_, options, [this, id](absl::Status status) {
    // Not from within the child's own callback.
    loop_.After(absl::ZeroDuration(), [this, id, status] {
      if (validating_ == id) OnPrepared(id, status);
    });
  });
}

absl::StatusOr<DatasetCounts> Engine::TakeDatasets(const JobRecord& job) {
  ASSIGN_OR_RETURN(const ResolvedSpec spec,
                   ResolvedSpec::FromJson(job.resolved));
  ASSIGN_OR_RETURN(const ModelDirectory model, CheckModel(spec.spec()));
  const std::string data = JobDirectory(job) + "/data";
  ASSIGN_OR_RETURN(const auto train,
                   Dataset::Open(data + "/train", model.config.vocab_size));
  DatasetCounts counts;
  counts.train_sequences = train->counts().sequences;
  counts.train_tokens = train->counts().tokens;
  counts.train_truncated = train->counts().truncated;
  counts.train_dropped = train->counts().dropped;
  counts.sha256 = train->counts().tokens_sha256;
  WarnOfData(job, spec.spec().dataset, *train);
  RETURN_IF_ERROR(CheckStepsLeft(spec.spec(), train->counts().rows));
  if (spec.spec().validation_dataset.empty()) return counts;
  ASSIGN_OR_RETURN(
      const auto validation,
      Dataset::Open(data + "/validation", model.config.vocab_size));
  counts.validation_sequences = validation->counts().sequences;
  counts.validation_tokens = validation->counts().tokens;
  counts.validation_truncated = validation->counts().truncated;
  counts.validation_dropped = validation->counts().dropped;
  counts.bigram_validation_loss = validation->counts().bigram_loss;
  WarnOfData(job, spec.spec().validation_dataset, *validation);
  return counts;
}

void Engine::OnValidated(const std::string& id, absl::Status status) {
  validating_.clear();
  preparer_.reset();
  prompt_check_.reset();
  const auto job = store_.Get(id);
  absl::StatusOr<DatasetCounts> counts = !status.ok() ? status
                                         : !job.ok()  ? job.status()
                                                      : TakeDatasets(*job);
  if (counts.ok()) {
    JobDetails details;
    details.dataset = *counts;
    counts = store_.SetDetails(id, details).ok()
                 ? counts
                 : absl::InternalError("the job store did not take it");
  }
  if (!counts.ok()) {
    FailJob(id, ReasonOf(counts.status()),
            std::string(counts.status().message()));
    StartNext();
    return;
  }
  SetState(id, JobState::kQueued, JobReason::kNone, "");
  Enqueue(id);
}

// --- running ---

absl::Status Engine::StartJob(const Queued& queued) {
  const std::string& id = queued.id;
  ASSIGN_OR_RETURN(const JobRecord job, store_.Get(id));
  ASSIGN_OR_RETURN(auto files, JobFiles::Open(JobDirectory(job)));
  ASSIGN_OR_RETURN(ResolvedSpec spec, ResolvedSpec::FromJson(job.resolved));
  ASSIGN_OR_RETURN(const std::optional<int64_t> finish_step,
                   ReadFinishStep(FinishPath(job)));
  // A job that was cancelled or is not on disk must not run.
  RETURN_IF_ERROR(store_.Transition(id, JobState::kLoading, {}).status());
  UpdateCounts();
  metrics_.ObserveQueueWait(absl::Now() - queued.since);
  auto model = CheckModel(spec.spec());
  auto adapter =
      model.ok() ? CheckAdapter(spec.spec(), model->config) : model.status();
  if (!adapter.ok()) {  // they changed since the job was submitted
    FailJob(id, JobReason::kInvalidModel,
            std::string(adapter.status().message()));
    return absl::OkStatus();
  }
  const auto run = std::make_shared<RunningJob>(
      RunningJob::World{
          .store = store_,
          .metrics = metrics_,
          .devices = devices_,
          .recorder = recorder_,
          .samples = options_.samples,
          .steps_changed = [this] { UpdateBusy(); },
          .changed = [this](const std::string& job_id,
                            JobState state) { OnChanged(job_id, state); },
          .finished = [this](
                          const std::string& job_id,
                          const JobOutcome& out) { OnFinished(job_id, out); }},
      job, std::move(files));
  const auto need = NeedOfSpec(spec, model->config);
  // Without one the runner fails the job.
  if (need.ok()) run->set_table_bytes(need->table_bytes);
  const std::string data = JobDirectory(job) + "/data";
  ASSIGN_OR_RETURN(auto train,
                   Dataset::Open(data + "/train", model->config.vocab_size));
  std::unique_ptr<Dataset> validation;
  if (!spec.spec().validation_dataset.empty()) {
    ASSIGN_OR_RETURN(validation, Dataset::Open(data + "/validation",
                                               model->config.vocab_size));
  }
  run->SetData(std::move(train), std::move(validation));
  metrics_.SetJobInfo(id, FamilyOf(model->config.architecture).model_type,
                      spec.spec().method == Method::kLora ? "lora" : "full");
  TextHelperOptions text =
      TextOptions(spec.spec(), run->train().counts().chat_template);
  RunnerOptions options{.job = static_cast<uint64_t>(*JobNumber(job.id)),
                        .uid = job.uid,
                        .directory = JobDirectory(job),
                        .output_path = OutputPath(job),
                        .spec = std::move(spec),
                        .files = roots_.get(),
                        .model = *std::move(model),
                        .adapter = *std::move(adapter),
                        .bases = &bases_,
                        .train = &run->train(),
                        .validation = run->validation(),
                        .text = std::move(text),
                        .device = options_.device};
  run->SetRunner(std::make_unique<JobRunner>(loop_, arena_, pool_, dispatch_,
                                             std::move(options), run.get()));
  if (finish_step.has_value()) run->runner().FinishAfter(*finish_step);
  run->set_color(ChooseColor(id));
  run->files().Log(absl::StrCat("starting ", job.id));
  running_[id] = run;
  run->runner().Start();
  return absl::OkStatus();
}

}  // namespace roundhouse
