#include "server/jobs/engine.h"

#include <algorithm>
#include <filesystem>
#include <future>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/files/durable_file.h"
#include "base/files/file_site.h"
#include "base/log.h"
#include "base/model/family.h"
#include "base/status.h"
#include "server/jobs/finish_mark.h"
#include "server/jobs/runner_work.h"
#include "server/jobs/sample_names.h"
#include "server/jobs/tokenizer_copy.h"

namespace roundhouse {
namespace {

// A file that can't be read just now: the job waits, and is not to blame.
absl::Status OfDisk(const absl::Status& status) {
  return absl::DataLossError(status.message());
}

// The step of the checkpoint that the job goes on from.
absl::StatusOr<int64_t> StartStep(const FileOpener& files,
                                  const AdmittedJob& job) {
  if (job.resumed.has_value()) return job.start_step();
  // It was admitted by an earlier daemon.
  const auto manifest =
      ReadCheckpoint(files, job.spec.spec().resume_from_checkpoint, false);
  if (MayPass(manifest.status())) return OfDisk(manifest.status());
  if (absl::IsDataLoss(manifest.status())) {
    return absl::InvalidArgumentError(
        absl::StrCat("resume_from_checkpoint: ", manifest.status().message()));
  }
  RETURN_IF_ERROR(manifest.status());
  return manifest->step;
}

// A job by epochs knows its steps only now.
absl::Status CheckStepsLeft(const FileOpener& files, const AdmittedJob& job,
                            int64_t rows) {
  const JobSpec& spec = job.spec.spec();
  if (spec.resume_from_checkpoint.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const int64_t start, StartStep(files, job));
  const int64_t steps = TotalSteps(spec, rows);
  if (start < steps) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("resume_from_checkpoint: ", spec.resume_from_checkpoint,
                   ": step ", start, " is not below the ", steps,
                   " steps of the job (", spec.num_train_epochs, " epochs of ",
                   rows, " ", spec.packing ? "packed rows" : "sequences", ")"));
}

// What messages call a dataset.
std::string NameOf(const std::vector<std::string>& files) {
  return files.size() == 1
             ? files[0]
             : absl::StrCat(files[0], " and ", files.size() - 1, " more");
}

}  // namespace

Engine::Engine(const EngineOptions& options, EventLoop& loop, HostArena& arena,
               WorkerPool& pool, JobStore& store, ServerMetrics& metrics)
    : options_(options),
      loop_(loop),
      arena_(arena),
      pool_(pool),
      store_(store),
      reserve_(options.state_dir),
      metrics_(metrics),
      transitions_(loop, store, reserve_),
      paths_(options.state_dir),
      fit_({.device_count = pool.device_count(),
            .device = options.device,
            .host_bytes = arena.limit_bytes(),
            .state_dir = options.state_dir}),
      bases_(arena),
      files_line_(pool),
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

JobReason Engine::ReasonOf(const absl::Status& status) {
  const absl::StatusCode code = status.code();
  return code == absl::StatusCode::kInvalidArgument ? JobReason::kInvalidDataset
         : code == absl::StatusCode::kResourceExhausted
             ? JobReason::kStorageFull
         : code == absl::StatusCode::kDataLoss ? JobReason::kStorageError
                                               : JobReason::kInternal;
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(
    const EngineOptions& options, EventLoop& loop, HostArena& arena,
    WorkerPool& pool, JobStore& store, ServerMetrics& metrics) {
  auto engine = std::unique_ptr<Engine>(
      new Engine(options, loop, arena, pool, store, metrics));
  if (const absl::Status made = engine->reserve_.Fill(); !made.ok()) {
    RH_LOG(kError) << made.message()
                   << "; until there is room no job is taken or started";
  }
  // Checkpoints and outputs of this server's jobs can be named too.
  DataRootsOptions roots = {.roots = options.data_roots,
                            .hub_cache = options.hf_cache};
  for (const char* own : {"/jobs", "/outputs"}) {
    RETURN_IF_ERROR(MakeFolderDurably(kStateFolder, options.state_dir + own));
    roots.own.push_back(options.state_dir + own);
  }
  ASSIGN_OR_RETURN(engine->roots_, DataRoots::Create(roots));
  Engine* const self = engine.get();
  const DataRoots& files = *engine->roots_;
  engine->names_ = std::make_unique<WeightNames>(files, store, options.hf_cache,
                                                 engine->paths_);
  engine->checker_ = std::make_unique<JobChecker>(files, store, *engine->names_,
                                                  engine->paths_, engine->fit_);
  engine->admitted_ = std::make_unique<AdmittedJobs>(*engine->checker_);
  engine->export_names_ =
      std::make_unique<ExportNames>(files, *engine->names_, *engine->checker_);
  engine->exporter_ =
      std::make_unique<Exporter>(loop, engine->files_line_, *self->roots_,
                                 options.state_dir + "/export-in-progress",
                                 [self](const ExportRequest& request) {
                                   return self->export_names_->Plan(request);
                                 });
  const std::filesystem::path scripts =
      std::filesystem::path(options.prepare_script).parent_path();
  engine->sampler_ = std::make_unique<Sampler>(
      loop, arena, pool, engine->bases_,
      SamplerOptions{.program = {options.python, scripts / "prepare_sample.py"},
                     .files_line = &engine->files_line_,
                     .open =
                         [self](const std::string& model) {
                           return OpenNamedSample(*self->names_, *self->roots_,
                                                  model);
                         },
                     .reserved_bytes = [self] { return self->TableBytes(); }});
  return engine;
}

// --- taking up and ending ---

void Engine::Drain(std::function<void()> drained) {
  draining_ = true;
  drained_ = std::move(drained);
  validations_.clear();
  data_check_.reset();
  exporter_->Stop();
  sampler_->Stop();
  if (running_.empty()) {
    std::exchange(drained_, nullptr)();
    return;
  }
  ForEachRunning([](RunningJob& run) { run.runner().Drain(); });
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

void Engine::Forget(const std::string& id) {
  std::erase_if(queue_, [&](const Queued& job) { return job.id == id; });
  ForgetValidation(id);
  ForgetData(id);
  admitted_->Forget(id);
}

void Engine::Enqueue(const std::string& id) {
  queue_.push_back({id, absl::Now()});
  std::erase_if(ended_, [&](const StatusEnded& job) { return job.id == id; });
  UpdateCounts();
  StartNext();
}

void Engine::StartNext() {
  if (draining_ || !taken_up_) return;
  QueueThoseReady();
  // A job that begins on a full disk only finds out later.
  if (!reserve_.held() || !MayTakeUp()) return;
  StartValidations();
  GoOnWithRoom();  // what kept its memory goes first
  while (!queue_.empty() && HasPlace()) {
    const Queued queued = queue_.front();
    if (!MakeRoom(queued.id)) return;
    const std::optional<absl::Status> data = CheckData(queued.id);
    if (!data.has_value()) return;
    queue_.pop_front();
    if (absl::IsResourceExhausted(*data)) {  // damaged, and no room for others
      EndUntaken(queued.id, *data);
      continue;
    }
    const absl::Status status = data->ok() ? StartJob(queued) : *data;
    if (status.ok()) continue;
    if (absl::IsResourceExhausted(status) || absl::IsUnavailable(status)) {
      queue_.push_front(queued);
      start_later_ = true;  // with the next tick
      return;
    }
    EndUntaken(queued.id, status);
  }
}

absl::StatusOr<DatasetCounts> Engine::TakeDatasets(const JobRecord& job) {
  const auto admitted = admitted_->Get(job);
  if (MayPass(admitted.status())) return OfDisk(admitted.status());
  RETURN_IF_ERROR(admitted.status());
  const ResolvedSpec& spec = (*admitted)->spec;
  const ModelDirectory& model = (*admitted)->model;
  const std::string data = paths_.Data(job);
  ASSIGN_OR_RETURN(const auto train,
                   Dataset::Open(data + "/train", model.config.vocab_size));
  DatasetCounts counts;
  counts.train_sequences = train->counts().sequences;
  counts.train_tokens = train->counts().tokens;
  counts.train_truncated = train->counts().truncated;
  counts.train_dropped = train->counts().dropped;
  counts.sha256 = train->counts().tokens_sha256;
  WarnOfData(job, NameOf(spec.spec().dataset), *train);
  RETURN_IF_ERROR(CheckStepsLeft(*roots_, **admitted, train->counts().rows));
  if (!HasValidation(spec.spec())) return counts;
  ASSIGN_OR_RETURN(
      const auto validation,
      Dataset::Open(data + "/validation", model.config.vocab_size));
  counts.validation_sequences = validation->counts().sequences;
  counts.validation_tokens = validation->counts().tokens;
  counts.validation_truncated = validation->counts().truncated;
  counts.validation_dropped = validation->counts().dropped;
  counts.bigram_validation_loss = validation->counts().bigram_loss;
  const auto& own = spec.spec().validation_dataset;
  WarnOfData(job, NameOf(own.empty() ? spec.spec().dataset : own), *validation);
  return counts;
}

// --- running ---

absl::Status Engine::StartJob(const Queued& queued) {
  const std::string& id = queued.id;
  ASSIGN_OR_RETURN(const JobRecord job, store_.Get(id));
  auto files = JobFiles::Open(paths_.Directory(job));
  if (absl::IsInternal(files.status())) return OfDisk(files.status());
  RETURN_IF_ERROR(files.status());
  // A job that was cancelled or is not on disk must not run.
  RETURN_IF_ERROR(transitions_.Ask(id, JobState::kLoading, {}).status());
  UpdateCounts();
  metrics_.ObserveQueueWait(absl::Now() - queued.since);
  absl::Status loading = TakeMissingCounts(job);
  if (loading.ok()) loading = LoadJob(job, *std::move(files));
  if (!loading.ok()) EndUntaken(id, loading);
  return absl::OkStatus();
}

absl::Status Engine::TakeMissingCounts(const JobRecord& job) {
  if (job.dataset.has_value()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const DatasetCounts counts, TakeDatasets(job));
  JobDetails details;
  details.dataset = counts;
  transitions_.Want(
      job.id, "what its datasets hold",
      [this, id = job.id, details] { return store_.SetDetails(id, details); });
  return absl::OkStatus();
}

absl::Status Engine::LoadJob(const JobRecord& job,
                             std::unique_ptr<JobFiles> files) {
  const std::string& id = job.id;
  const std::optional<int64_t> finish_step = FinishStepOf(job);
  const auto admitted = admitted_->GetAsIs(job);
  admitted_->Forget(id);
  if (MayPass(admitted.status())) return OfDisk(admitted.status());
  if (!admitted.ok()) {  // files changed since the job was submitted
    FailJob(id, JobReason::kInvalidModel,
            std::string(admitted.status().message()));
    return absl::OkStatus();
  }
  const ResolvedSpec& spec = (*admitted)->spec;
  const ModelDirectory* const model = &(*admitted)->model;
  const auto run = std::make_shared<RunningJob>(
      RunningJob::World{
          .store = store_,
          .transitions = transitions_,
          .metrics = metrics_,
          .devices = devices_,
          .recorder = recorder_,
          .samples = options_.samples,
          .steps_changed = [this] { UpdateBusy(); },
          .changed = [this](const std::string& job_id,
                            JobState state) { OnChanged(job_id, state); },
          .held = [this](const std::string& job_id,
                         const HeldReport& report) { OnHeld(job_id, report); },
          .finished = [this](
                          const std::string& job_id,
                          const JobOutcome& out) { OnFinished(job_id, out); }},
      job, std::move(files));
  // Without one the runner fails the job.
  const absl::StatusOr<HostNeed>& need = (*admitted)->host;
  if (need.ok()) run->set_table_bytes(need->table_bytes);
  const std::string data = paths_.Data(job);
  ASSIGN_OR_RETURN(auto train,
                   Dataset::Open(data + "/train", model->config.vocab_size));
  std::unique_ptr<Dataset> validation;
  if (HasValidation(spec.spec())) {
    ASSIGN_OR_RETURN(validation, Dataset::Open(data + "/validation",
                                               model->config.vocab_size));
  }
  run->SetData(std::move(train), std::move(validation));
  metrics_.SetJobInfo(id, FamilyOf(model->config.architecture).model_type,
                      spec.spec().method == Method::kLora ? "lora" : "full");
  TextHelperOptions text =
      TextOptions(spec.spec(), run->train().counts().chat_template,
                  [folder = paths_.Directory(job), model = model->path] {
                    return GiveTokenizerCopy(folder, model);
                  });
  HubName base =
      names_->hub().NameOf(model->path).value_or(HubName{.id = model->path});
  RunnerOptions options{.job = static_cast<uint64_t>(*JobNumber(job.id)),
                        .uid = job.uid,
                        .directory = paths_.Directory(job),
                        .output_path = paths_.Output(job),
                        .spec = spec,
                        .files = roots_.get(),
                        .sources = CheckSources(job, **admitted),
                        .model = *model,
                        .base = std::move(base),
                        .adapter = (*admitted)->adapter,
                        .bases = &bases_,
                        .files_line = &files_line_,
                        .train = &run->train(),
                        .dataset_sha256 = job.dataset.has_value()
                                              ? job.dataset->sha256
                                              : std::string(),
                        .validation = run->validation(),
                        .text = std::move(text),
                        .device = options_.device};
  run->SetRunner(std::make_unique<JobRunner>(
      JobRunner::Surroundings{loop_, arena_, pool_, dispatch_},
      std::move(options), *run, run->telemetry()));
  if (finish_step.has_value()) run->runner().FinishAfter(*finish_step);
  run->set_color(ChooseColor(id));
  run->files().Log(absl::StrCat("starting ", job.id));
  running_[id] = run;
  run->runner().Start();
  return absl::OkStatus();
}

}  // namespace roundhouse
