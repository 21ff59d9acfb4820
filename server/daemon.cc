#include "server/daemon.h"

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/files/descriptor.h"
#include "base/files/open_limit.h"
#include "base/files/setting_file.h"
#include "base/log.h"
#include "base/path_exists.h"
#include "base/status.h"
#include "base/wire/peers.h"
#include "server/access/accounts.h"
#include "server/access/tokens.h"
#include "server/admission/unknown_files.h"
#include "server/api/api_server.h"
#include "server/arena/arena_placement.h"
#include "server/arena/host_arena.h"
#include "server/core_files.h"
#include "server/dataset/dataset_inspector.h"
#include "server/devices/device_loans.h"
#include "server/doctor/doctor.h"
#include "server/examination.h"
#include "server/gpu/gpu_metrics.h"
#include "server/gpu/gpu_probe.h"
#include "server/hub/model_pulls.h"
#include "server/jobs/engine.h"
#include "server/loop/event_loop.h"
#include "server/loop/memory_trim.h"
#include "server/machine.h"
#include "server/observe/http_server.h"
#include "server/observe/metrics.h"
#include "server/observe/status_board.h"
#include "server/observe/status_page.h"
#include "server/observe/timing_log.h"
#include "server/planning/model_catalog.h"
#include "server/planning/training_planner.h"
#include "server/service/service_notice.h"
#include "server/state_directory.h"
#include "server/store/disk_reserve.h"
#include "server/store/store.h"
#include "server/tls/self_signed.h"
#include "server/tls/tls_context.h"
#include "server/uploads/upload_sweep.h"
#include "server/uploads/uploads.h"
#include "server/workers/process_pool.h"
#include "server/yielding.h"

namespace roundhouse {
namespace {

// The workers of a daemon that was killed die within moments of it.  Each
// inherits the state directory's lock: it is free when all of them are gone.
constexpr absl::Duration kLockPatience = absl::Seconds(10);
constexpr absl::Duration kWorkerGrace = absl::Seconds(5);
constexpr absl::Duration kCallGrace = absl::Seconds(2);

absl::StatusOr<Descriptor> BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a write over the limit is an error like others
  Descriptor fd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (fd.get() < 0) {
    return absl::InternalError(
        absl::StrCat("signalfd: ", std::strerror(errno)));
  }
  return fd;
}

// On a full disk with what is held for it.
absl::StatusOr<std::unique_ptr<JobStore>> OpenJobStore(
    const DaemonOptions& options, ServerMetrics& metrics) {
  const StoreOptions store = {.path = options.state_dir + "/jobs.db",
                              .on_commit = [&metrics](absl::Duration took) {
                                metrics.ObserveCommit(took);
                              }};
  auto opened = JobStore::Open(store);
  if (!absl::IsResourceExhausted(opened.status()) ||
      !DiskReserve(options.state_dir).GiveUp()) {
    return opened;
  }
  RH_LOG(kWarning) << "the disk is full: its reserve goes to the job store";
  return JobStore::Open(store);
}

absl::Status CheckPrograms(const DaemonOptions& options) {
  const std::pair<const char*, const std::string*> needed[] = {
      {"worker-program", &options.worker_program},
      {"gpu-probe", &options.gpu_probe},
      {"prepare-script", &options.prepare_script},
      {"python", &options.python}};
  for (const auto& [key, path] : needed) {
    if (path == &options.gpu_probe && !options.gpus.has_value()) continue;
    if (PathExists(*path)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--", key, ": ", *path, " does not exist (run deploy/install-deps)"));
  }
  return absl::OkStatus();
}

// Nothing slows down who guesses.
constexpr size_t kMinMetricsTokenBytes = 24;

// Says what the store has lost, and what lies about that it does not know; ids
// that either shows to be given are not given again.
absl::Status SayWhatIsLost(const std::string& state_dir, JobStore& store) {
  for (const std::string& finding : store.findings()) {
    RH_LOG(kError) << "job store: " << finding;
  }
  ASSIGN_OR_RETURN(const UnknownFiles unknown,
                   FindUnknownFiles(state_dir, store));
  const std::string text = Describe(unknown);
  if (!text.empty()) RH_LOG(kError) << state_dir << ": " << text;
  if (unknown.last_job == 0) return absl::OkStatus();
  return store.SkipJobNumbers(unknown.last_job);
}

// A root of a name that nobody can have is a mistake; one of a name that nobody
// has yet may be had later.
absl::Status CheckOwners(const std::vector<OwnedRoot>& roots,
                         const AccountList& accounts) {
  for (const auto& [owner, path] : roots) {
    const bool user = owner.kind == RootOwner::Kind::kUser;
    const char* const flag = RootFlag(owner.kind);
    RETURN_IF_ERROR(CheckAccountName(flag, owner.name));
    const bool known = user ? accounts.User(owner.name) != nullptr
                            : accounts.projects.contains(owner.name);
    if (known) continue;
    RH_LOG(kWarning) << flag << ": there is no "
                     << (user ? "user " : "project ") << owner.name
                     << " yet: " << path << " is the admins'";
  }
  return absl::OkStatus();
}

HttpServer::Pages MakePages(const ServerMetrics& metrics, StatusBoard& status) {
  return {{"/",
           [] {
             return HttpAnswer{.content_type = "text/html; charset=utf-8",
                               .body = std::string(StatusPageHtml()),
                               .policy = StatusPagePolicy()};
           }},
          {"/status.json",
           [&status] {
             auto json = status.Json();
             return HttpAnswer{.status = json.has_value() ? 200 : 503,
                               .content_type = "application/json",
                               .body = std::move(json).value_or("{}")};
           }},
          {"/metrics", [&metrics] {
             return HttpAnswer{
                 .content_type = "text/plain; version=0.0.4; charset=utf-8",
                 .body = metrics.Render()};
           }}};
}

// Stops in order: the running step, the workers, the loop.
void StopInOrder(EventLoop& loop, Engine& engine, ProcessPool& pool) {
  auto stop_workers = [&loop, &pool] {
    pool.Stop(kWorkerGrace, [&loop] { loop.Quit(); });
  };
  const EventLoop::TimerId limit = loop.After(kDrainLimit, [stop_workers] {
    RH_LOG(kError) << "the running step did not end in time";
    stop_workers();
  });
  engine.Drain([&loop, limit, stop_workers] {
    loop.CancelTimer(limit);
    stop_workers();
  });
}

// What a daemon consists of, each part made with those above it and ended
// before them.
class Daemon {
 public:
  explicit Daemon(const DaemonOptions& options) : options_(options) {}
  // Work beside the loop uses the engine, and a start that failed has run none
  // of the loop.
  ~Daemon() {
    if (loop_ != nullptr) loop_->StopBeside();
  }
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  // Until SIGTERM or SIGINT.
  absl::Status Run() {
    RETURN_IF_ERROR(OpenState());
    RETURN_IF_ERROR(OpenMemory());
    RETURN_IF_ERROR(MakeWorkers());
    RETURN_IF_ERROR(MakeEngine());
    RETURN_IF_ERROR(StartApi());
    SayWhere();
    Serve();
    return ended_;
  }

 private:
  // What is on disk, what the driver says, and the port of metrics.
  absl::Status OpenState() {
    RaiseDescriptors();
    RETURN_IF_ERROR(SocketPath(options_.listen).status());
    RETURN_IF_ERROR(CheckPrograms(options_));
    if (!options_.hub.token_file.empty()) {
      RETURN_IF_ERROR(
          ReadSecretFile(kHubTokenFlag, options_.hub.token_file).status());
    }
    ASSIGN_OR_RETURN(signals_, BlockSignals());
    ASSIGN_OR_RETURN(state_,
                     StateDirectory::Lock(options_.state_dir, kLockPatience));
    trim_ = std::make_unique<MemoryTrim>();
    metrics_ = ServerMetrics::Create();
    std::string token;
    if (!options_.metrics_token_file.empty()) {
      ASSIGN_OR_RETURN(token, ReadSecretFile("metrics-token-file",
                                             options_.metrics_token_file,
                                             kMinMetricsTokenBytes));
    }
    ASSIGN_OR_RETURN(http_,
                     HttpServer::Start(options_.metrics_listen,
                                       MakePages(*metrics_, status_), token));
    ASSIGN_OR_RETURN(store_, OpenJobStore(options_, *metrics_));
    ASSIGN_OR_RETURN(std::set<std::string> lent,
                     DeviceLoans::GpusOut(store_.get()));
    ASSIGN_OR_RETURN(yielding_, Yielding::Create(options_));
    yielding_->AddTaken(lent);
    ASSIGN_OR_RETURN(gpus_, FindGpus(options_, lent));
    ASSIGN_OR_RETURN(accounts_, Accounts::Load(store_.get()));
    RETURN_IF_ERROR(CheckOwners(options_.owned_roots, *accounts_->list()));
    ASSIGN_OR_RETURN(tokens_, Tokens::Load(store_.get()));
    ASSIGN_OR_RETURN(
        loans_,
        DeviceLoans::Load(store_.get(),
                          DeviceLoans::KeysOf(gpus_, options_.device_count)));
    if (options_.listen_tls.has_value()) {
      ASSIGN_OR_RETURN(tls_, OpenTls(options_.state_dir, options_.tls));
    }
    RETURN_IF_ERROR(state_->Keep("jobs.db"));
    ASSIGN_OR_RETURN(uploads_, Uploads::Open({.state_dir = options_.state_dir},
                                             store_.get()));
    RETURN_IF_ERROR(SayWhatIsLost(options_.state_dir, *store_));
    for (const std::string& finding : uploads_->findings()) {
      RH_LOG(kError) << "uploads: " << finding;
    }
    pulls_ = std::make_unique<ModelPulls>(
        ModelPullsOptions{.hub = options_.hub.address,
                          .token_file = options_.hub.token_file},
        uploads_.get());
    if (!options_.sample_log.empty()) {
      ASSIGN_OR_RETURN(samples_, TimingLog::Create(options_.sample_log));
    }
    return absl::OkStatus();
  }

  absl::Status OpenMemory() {
    ASSIGN_OR_RETURN(loop_, EventLoop::Create());
    loop_->TellTurns([metrics = metrics_.get()](absl::Duration time) {
      metrics->ObserveLoopTurn(time);
    });
    ASSIGN_OR_RETURN(
        arena_,
        HostArena::Create(
            options_.host_memory_bytes,
            static_cast<uint32_t>(options_.device_count + 2),
            {.freed = gpus_.empty() ? FreedPages::kReturned : FreedPages::kKept,
             .loop = loop_.get(),
             .huge = HugePagesOnAdvice()}));
    const absl::Status spread =
        SpreadOverNodes(arena_->arena().base(), arena_->arena().size_bytes());
    if (!spread.ok()) RH_LOG(kWarning) << "host memory: " << spread.message();
    return absl::OkStatus();
  }

  absl::Status MakeWorkers() {
    ASSIGN_OR_RETURN(ProcessPoolOptions options,
                     PoolOptions(options_, state_->fd()));
    options.gpus = gpus_;
    ASSIGN_OR_RETURN(options.peers, UsesPeers(options_, gpus_));
    options.before_compute = GoBeforeCompute(options_);
    options.on_unable = [this](const std::string& why) {
      ended_ = absl::FailedPreconditionError(why);
      loop_->Quit();
    };
    ASSIGN_OR_RETURN(pool_, ProcessPool::Create(*loop_, *arena_, options));
    const uint64_t exchange_bytes = options.peers ? wire::kPeerScratchBytes : 0;
    if (options_.device_count > 0 &&
        options_.device_memory_bytes <= exchange_bytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--device-memory: exchanges of sums between devices take ",
          exchange_bytes, " bytes of it; --peers=off does without"));
    }
    room_ = {options_.device_memory_bytes - exchange_bytes,
             options_.gpus.has_value(), options.peers};
    return absl::OkStatus();
  }

  HelperProgram DatasetHelperProgram() const {
    return {.python = options_.python,
            .script = options_.prepare_script,
            .processes = options_.dataset_processes};
  }

  absl::Status MakeEngine() {
    ASSIGN_OR_RETURN(
        engine_,
        Engine::Create({.state_dir = options_.state_dir,
                        .data_roots = options_.data_roots,
                        .owned_roots = options_.owned_roots,
                        .hf_cache = options_.hf_cache,
                        .dataset_helper = DatasetHelperProgram(),
                        .device = room_,
                        .device_threads = options_.device_threads,
                        .link_gbps = options_.link_gbps,
                        .peers = {.enabled = room_.holds_sums},
                        .metrics_address = http_->address(),
                        .max_running_jobs = options_.max_running_jobs,
                        .status = http_->address().empty() ? nullptr : &status_,
                        .samples = samples_.get(),
                        .uploads = uploads_.get()},
                       {.loop = *loop_,
                        .arena = *arena_,
                        .pool = *pool_,
                        .store = *store_,
                        .metrics = *metrics_}));
    gpu_metrics_ = std::make_unique<GpuMetrics>(
        *loop_, GpuProbeOptions{options_.gpu_probe, options_.gpu_probe_limit},
        gpus_, metrics_->gpus(), [this](int device, const std::string& what) {
          pool_->Suspect(static_cast<DeviceId>(device), what);
        });
    engine_->device_keeper().SetLoans(loans_->Stored());
    yielding_->Begin(*loop_, gpus_, *loans_, engine_->device_keeper());
    RETURN_IF_ERROR(pool_->Start(&engine_->listener()));
    return engine_->Recover();
  }

  absl::Status StartApi() {
    const NamesOf names = [this](const Caller& caller, Role role) {
      return engine_->NamesOf(caller, role);
    };
    inspector_ = std::make_unique<DatasetInspector>(
        *loop_, DatasetHelperProgram(), engine_->files(), names);
    catalog_ = std::make_unique<ModelCatalog>(
        ModelCatalogOptions{.state_dir = options_.state_dir,
                            .hf_cache = options_.hf_cache,
                            .device_count = options_.device_count,
                            .device = room_,
                            .host_limit_bytes = arena_->limit_bytes()},
        *store_, engine_->files(), names);
    planner_ = std::make_unique<TrainingPlanner>(engine_->files(), names);
    doctor_ = std::make_unique<Doctor>(
        [what = WhatToExamine(options_)] { return Examine(what); });
    ASSIGN_OR_RETURN(
        api_,
        ApiServer::Start({.listen = options_.listen,
                          .listen_tls = options_.listen_tls,
                          .tls = tls_.get(),
                          .state_dir = options_.state_dir,
                          .metrics = metrics_.get(),
                          .check_kept = [this] { return state_->Check(); }},
                         {.jobs = engine_.get(),
                          .disk = &engine_->disk(),
                          .store = store_.get(),
                          .accounts = accounts_.get(),
                          .tokens = tokens_.get(),
                          .loans = loans_.get(),
                          .datasets = inspector_.get(),
                          .models = catalog_.get(),
                          .sampler = &engine_->sampler(),
                          .planner = planner_.get(),
                          .doctor = doctor_.get(),
                          .uploads = uploads_.get(),
                          .pulls = pulls_.get()}));
    return absl::OkStatus();
  }

  void SayWhere() const {
    const std::string& address = http_->address();
    RH_LOG(kInfo) << "serving on " << options_.listen << ", metrics on "
                  << (address.empty() ? "nothing" : address) << ", "
                  << options_.device_count << " devices";
    if (tls_ != nullptr) {
      RH_LOG(kInfo) << "serving TLS on " << api_->tls_address()->Text()
                    << ", the certificate's fingerprint is "
                    << tls_->fingerprint();
    }
    if (options_.hub.address.has_value()) {
      RH_LOG(kInfo) << "models are pulled from "
                    << options_.hub.address->origin().Text();
    }
    if (address.empty()) return;
    RH_LOG(kInfo) << "the status page is http://" << address
                  << "/, the metrics are http://" << address << "/metrics";
  }

  void Serve() {
    bool stopping = false;
    ServiceNotice notice(*loop_, SystemNotices());
    const std::string serving =
        absl::StrCat("serving on ", options_.listen, ", ",
                     options_.device_count, " devices");
    notice.Ready(serving);
    const StateWatch watch(*loop_, *state_, [&](const absl::Status& kept) {
      if (!stopping) {
        notice.SetStatus(kept.ok() ? serving : std::string(kept.message()));
      }
      api_->SetHealth(kept.ok() && !stopping ? ApiHealth::kServing
                                             : ApiHealth::kNotServing);
    });
    const UploadSweep sweep(*loop_, *uploads_);
    loop_->Watch(signals_.get(), EPOLLIN, [&](uint32_t) {
      signalfd_siginfo info;
      if (read(signals_.get(), &info, sizeof(info)) != sizeof(info)) return;
      if (std::exchange(stopping, true)) return;
      RH_LOG(kInfo) << "stopping: signal " << info.ssi_signo;
      notice.Stopping("stopping: a step that runs ends first");
      HurryOpens();  // all that is joined below ends, whatever hangs
      api_->SetHealth(ApiHealth::kNotServing);
      StopInOrder(*loop_, *engine_, *pool_);
    });
    loop_->Run();
    inspector_->Stop();
    api_->Shutdown(kCallGrace);
    RH_LOG(kInfo) << "stopped";
  }

  DaemonOptions options_;  // as given; with GPUs, also what was found
  Descriptor signals_;
  std::unique_ptr<StateDirectory> state_;
  std::vector<wire::Gpu> gpus_;
  std::unique_ptr<MemoryTrim> trim_;
  std::unique_ptr<ServerMetrics> metrics_;
  StatusBoard status_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<Accounts> accounts_;
  std::unique_ptr<Uploads> uploads_;
  std::unique_ptr<ModelPulls> pulls_;
  std::unique_ptr<Tokens> tokens_;
  std::unique_ptr<DeviceLoans> loans_;
  std::unique_ptr<TlsContext> tls_;  // null: none
  std::unique_ptr<TimingLog> samples_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<HostArena> arena_;
  absl::Status ended_;  // OK: stopped in order
  std::unique_ptr<ProcessPool> pool_;
  DeviceRoom room_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<GpuMetrics> gpu_metrics_;
  std::unique_ptr<Yielding> yielding_;
  std::unique_ptr<DatasetInspector> inspector_;
  std::unique_ptr<ModelCatalog> catalog_;
  std::unique_ptr<TrainingPlanner> planner_;
  std::unique_ptr<Doctor> doctor_;
  std::unique_ptr<ApiServer> api_;
};

}  // namespace

absl::Status RunDaemon(const DaemonOptions& options) {
  LimitOpens();
  LeaveNoCoreFiles();
  return Daemon(options).Run();
}

}  // namespace roundhouse
