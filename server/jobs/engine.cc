#include "server/jobs/engine.h"

#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "base/version.h"

namespace roundhouse {
namespace {

AdmissionOptions OptionsOfAdmission(const EngineOptions& options,
                                    const Engine::World& world) {
  return {.room = {.device_count = world.pool.device_count(),
                   .device = options.device,
                   .host_bytes = world.arena.limit_bytes(),
                   .state_dir = options.state_dir},
          .data_roots = options.data_roots,
          .owned_roots = options.owned_roots,
          .hf_cache = options.hf_cache,
          .dataset_helper = options.dataset_helper,
          .uploads = options.uploads};
}

DeviceReportsOptions OptionsOfReports(const EngineOptions& options) {
  return {.memory_bytes = options.device.bytes,
          .threads = options.device_threads,
          .link_gbps = options.link_gbps,
          .samples = options.samples};
}

}  // namespace

Engine::Engine(const EngineOptions& options, const World& world,
               std::unique_ptr<Admission> admission)
    : options_(options),
      world_(world),
      reserve_(options.state_dir),
      transitions_(world.loop, world.store, reserve_),
      admission_(std::move(admission)),
      readings_(options.state_dir),
      remover_(world.store, admission_->paths(), readings_),
      disk_({.store = world.store,
             .paths = admission_->paths(),
             .remover = remover_,
             .uploads = options.uploads},
            DiskCalls()),
      running_(world.loop, world.arena, world.pool, world.metrics,
               OptionsOfReports(options), options.peers),
      device_keeper_(world.loop, world.pool, running_.dispatch()),
      log_(world.loop),
      validations_({.loop = world.loop,
                    .arena = world.arena,
                    .pool = world.pool,
                    .store = world.store,
                    .admitted = admission_->admitted(),
                    .helpers = admission_->helpers(),
                    .roots = admission_->roots(),
                    .paths = admission_->paths()},
                   ValidationCalls()),
      opener_({.loop = world.loop,
               .store = world.store,
               .admitted = admission_->admitted(),
               .helpers = admission_->helpers(),
               .roots = admission_->roots(),
               .hub = admission_->names().hub(),
               .paths = admission_->paths(),
               .log = log_},
              OpenerCalls()),
      status_(options.status, options.max_running_jobs,
              world.arena.limit_bytes()),
      usage_(world.loop, world.store),
      kept_(KeptWorld(), KeptCalls()),
      outlook_({.loop = world.loop,
                .arena = world.arena,
                .store = world.store,
                .running = running_}),
      background_(world.loop) {
  world_.metrics.SetHostArenaLimit(
      static_cast<int64_t>(world_.arena.limit_bytes()));
  status_.SetHostUsed(world_.arena.used_bytes());
  world_.arena.OnFreedLater([this] { StartNext(); });
  running_.dispatch().dispatcher().OnCharge([this](const DeviceCharge& charge) {
    usage_.AddDevice(charge);
    running_.users().AddUse(charge, MonotonicNs());
  });
  MakeSampler();
  MakeExporter();
}

Engine::~Engine() = default;

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(
    const EngineOptions& options, const World& world) {
  ASSIGN_OR_RETURN(
      auto admission,
      Admission::Create(OptionsOfAdmission(options, world), world.store));
  auto engine =
      std::unique_ptr<Engine>(new Engine(options, world, std::move(admission)));
  if (const absl::Status made = engine->reserve_.Fill(); !made.ok()) {
    RH_LOG(kError) << made.message()
                   << "; until there is room no job is taken or started";
  }
  return engine;
}

void Engine::MakeSampler() {
  sampler_ = std::make_unique<Sampler>(
      world_.loop, world_.arena, world_.pool, running_.bases(),
      SamplerOptions{
          .program = admission_->helpers().TextProgram(),
          .files_line = &running_.files_line(),
          .open =
              [this](const SampleQuestion& question) {
                return OpenSample(question);
              },
          .computed =
              [this](const JobOwner& owner, int64_t ns) {
                running_.dispatch().dispatcher().NoteUse(
                    {.owner = owner, .device_ns = ns});
              },
          .reserved_bytes = [this] { return running_.TableBytes(); }});
  running_.set_sampler(sampler_.get());
}

void Engine::MakeExporter() {
  exporter_ = std::make_unique<Exporter>(
      world_.loop, running_.files_line(), admission_->roots(),
      options_.state_dir + "/export-in-progress",
      [this](const ExportRequest& request) { return PlanExport(request); });
}

Validations::Calls Engine::ValidationCalls() {
  return {
      .queue =
          [this](const std::string& id) {
            SetState(id, JobState::kQueued, JobReason::kNone, "",
                     [this, id] { Enqueue(id); });
          },
      .fail = [this](const std::string& id,
                     const absl::Status& status) { EndUntaken(id, status); },
      .counted = [this](const std::string& id,
                        const DatasetCounts& counts) { SetCounts(id, counts); },
      .warn = [this](const JobRecord& job,
                     const std::string& what) { Warn(job, what); },
      .again = [this] { StartNext(); }};
}

KeptJobs::World Engine::KeptWorld() {
  return {.loop = world_.loop,
          .arena = world_.arena,
          .running = running_,
          .store = world_.store,
          .transitions = transitions_,
          .status = status_,
          .sharing = sharing_,
          .max_running_jobs = options_.max_running_jobs};
}

KeptJobs::Calls Engine::KeptCalls() {
  return {.counts_changed = [this] { UpdateCounts(); },
          .start_next = [this] { StartNext(); },
          .turn_of = Turns()};
}

JobOpener::Calls Engine::OpenerCalls() {
  return {.warn =
              [this](const JobRecord& job, const std::string& what,
                     std::function<void()> then) {
                log_.Say(admission_->paths().Directory(job), WarningText(what),
                         [this, id = job.id, what, then = std::move(then)] {
                           StoreWarning(id, what, then);
                         });
              },
          .again = [this] { StartNext(); }};
}

void Engine::Drain(std::function<void()> drained) {
  phase_ = Phase::kDraining;
  drained_ = std::move(drained);
  validations_.Stop();
  opener_.Stop();
  exporter_->Stop();
  sampler_->Stop();
  if (running_.empty()) return EndDrain();
  running_.ForEach([](RunningJob& run) { run.runner().Drain(); });
}

// --- commands ---

absl::StatusOr<JobRecord> Engine::OnLoop(
    std::function<absl::StatusOr<JobRecord>()> change) {
  auto promise = std::make_shared<std::promise<absl::StatusOr<JobRecord>>>();
  auto answer = promise->get_future();
  RETURN_IF_ERROR(
      world_.loop.Post([promise, change] { promise->set_value(change()); }));
  return answer.get();
}

absl::StatusOr<JobRecord> Engine::Cancel(const std::string& id) {
  return OnLoop([this, id] { return CancelNow(id); });
}

absl::StatusOr<JobRecord> Engine::Pause(const std::string& id) {
  return OnLoop([this, id] { return PauseNow(id, Memory::kKept); });
}

absl::StatusOr<JobRecord> Engine::PauseAndGiveBack(const std::string& id) {
  return OnLoop([this, id] { return PauseNow(id, Memory::kGivenBack); });
}

absl::StatusOr<JobRecord> Engine::Resume(const std::string& id) {
  return OnLoop([this, id] { return ResumeNow(id); });
}

absl::StatusOr<JobRecord> Engine::Finish(const std::string& id) {
  auto promise = std::make_shared<std::promise<absl::StatusOr<JobRecord>>>();
  auto answer = promise->get_future();
  RETURN_IF_ERROR(world_.loop.Post([this, promise, id] {
    FinishNow(id, [promise](absl::StatusOr<JobRecord> done) {
      promise->set_value(std::move(done));
    });
  }));
  return answer.get();
}

absl::StatusOr<JobRecord> Engine::SetPriority(const std::string& id,
                                              const PriorityChange& change) {
  return OnLoop([this, id, change] { return SetPriorityNow(id, change); });
}

std::shared_ptr<ExportTask> Engine::Export(const ExportRequest& request) {
  return exporter_->Start(request);
}

absl::StatusOr<std::string> Engine::FindOutput(const std::string& source,
                                               const Caller& caller) {
  ASSIGN_OR_RETURN(const NamedWeights found,
                   admission_->exports().Source(source, {caller}));
  RETURN_IF_ERROR(readings_.Touch(
      found.path, absl::StrCat("a download of ", caller.owner())));
  return found.path;
}

std::shared_ptr<TraceTask> Engine::TraceJob(const std::string& id,
                                            int64_t steps) {
  auto task = std::make_shared<TraceTask>();
  const absl::Status posted = world_.loop.Post([this, id, steps, task] {
    const absl::Status traceable = CheckTraceable(id);
    if (traceable.ok()) {
      running_.recorder().Begin(id, steps, task);
    } else {
      task->Finish(traceable);
    }
  });
  if (!posted.ok()) task->Finish(posted);
  return task;
}

void Engine::SetSharing(const Sharing& sharing) {
  world_.loop.PostAnswer([this, sharing] {
    running_.dispatch().dispatcher().SetWeights(sharing.weights);
    sharing_ = sharing;
    StartNext();
  });
}

void Engine::SetDeviceLoans(const DeviceLoanList& loans) {
  world_.loop.PostAnswer([this, loans] {
    device_keeper_.SetLoans(loans);
    running_.devices().PublishWorkers();
  });
}

void Engine::ReviveDevice(int device) {
  world_.loop.PostAnswer([this, device] {
    const auto id = static_cast<DeviceId>(device);
    const WorkerPool& pool = world_.pool;
    if (pool.info(pool.DeviceWorker(id)).lost) world_.pool.BringBack(id);
    running_.devices().PublishWorkers();
  });
}

absl::StatusOr<SharedUse> Engine::Used() {
  auto promise = std::make_shared<std::promise<SharedUse>>();
  auto answer = promise->get_future();
  RETURN_IF_ERROR(
      world_.loop.Post([this, promise] { promise->set_value(UsedNow()); }));
  return answer.get();
}

std::vector<DeviceInfo> Engine::Devices() { return running_.devices().Infos(); }

ServerInfo Engine::Server() {
  ServerInfo info;
  info.version = kVersion;
  info.start_time = status_.start_time();
  info.host_memory_limit_bytes =
      static_cast<int64_t>(world_.arena.limit_bytes());
  info.metrics_address = options_.metrics_address;
  info.host_memory_used_bytes = static_cast<int64_t>(status_.host_used_bytes());
  return info;
}

}  // namespace roundhouse
