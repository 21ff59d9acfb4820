#include "server/api/api_server.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "google/protobuf/descriptor.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/server_posix.h"
#include "server/access/gate.h"
#include "server/api/account_service.h"
#include "server/api/checkpoint_service.h"
#include "server/api/dataset_service.h"
#include "server/api/job_service.h"
#include "server/api/model_service.h"
#include "server/api/plan_service.h"
#include "server/api/system/system_service.h"
#include "server/api/upload_service.h"
#include "server/audit/audit_log.h"
#include "server/calls/stream_pump.h"
#include "server/door/call_metrics.h"
#include "server/door/call_queue.h"
#include "server/door/front_door.h"
#include "server/door/open_calls.h"
#include "server/limits/limit_check.h"
#include "server/limits/limit_table.h"
#include "server/limits/sharing.h"

namespace roundhouse {
namespace {

constexpr size_t kGrpcMemoryBytes = 64 << 20;

// Every service, by the name that clients call it by.
constexpr const char* kServices[] = {
    "roundhouse.v1.FineTuningJobService", "roundhouse.v1.DatasetService",
    "roundhouse.v1.CheckpointService",    "roundhouse.v1.ModelService",
    "roundhouse.v1.PlanService",          "roundhouse.v1.SystemService",
    "roundhouse.v1.AccountService",       "roundhouse.v1.UploadService"};

// "/roundhouse.v1.PlanService/PlanTraining", of every method that there is.
std::set<std::string> MethodNames() {
  std::set<std::string> names = {
      "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch",
      "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"};
  for (const char* name : kServices) {
    const google::protobuf::ServiceDescriptor* const service =
        google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(
            name);
    ROUNDHOUSE_CHECK(service != nullptr) << name;
    for (int i = 0; i < service->method_count(); ++i) {
      names.insert(absl::StrCat("/", name, "/", service->method(i)->name()));
    }
  }
  return names;
}

// What everybody may have, and less where descriptors are few.
PeerLimits LimitsOf(const ApiOptions& options) {
  PeerLimits limits = options.limits;
  struct rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return limits;
  const rlim_t few = std::max<rlim_t>(
      kFewestConnections, files.rlim_cur / 2 / kDescriptorsOfConnection);
  const auto most = static_cast<int>(
      std::min<rlim_t>(few, static_cast<rlim_t>(limits.connections)));
  limits.connections = most;
  limits.connections_admin = std::min(limits.connections_admin, most);
  // Somebody else's fits beside one user's, or one address'.
  limits.connections_each =
      std::min(limits.connections_each, std::max(1, most / 2));
  limits.connections_address =
      std::min(limits.connections_address, std::max(1, most / 2));
  return limits;
}

AuditOptions AuditOptionsOf(const ApiOptions& options) {
  AuditOptions audit;
  if (options.metrics != nullptr) {
    audit.on_loss = [metrics = options.metrics] {
      metrics->CountLostAuditRow();
    };
  }
  return audit;
}

// What engine and loans have of what is limited.
LimitCheck::OtherUse OtherUse(JobEngine& engine, const DeviceLoans& loans) {
  return [used = engine.Used(), &loans](
             Limit limit, const Counted& of) -> std::optional<int64_t> {
    if (limit == Limit::kLentDevices) return loans.LentTo(of.owner);
    return used.ok() ? UseOf(*used, limit, of) : std::nullopt;
  };
}

// What an admin set as the bytes_in_flight of whoever has this uid.
std::optional<uint64_t> MostUnfinished(const Gate& gate,
                                       const LimitCheck& limits, uid_t uid) {
  if (!limits.Has(Limit::kBytesInFlight)) return std::nullopt;
  const absl::StatusOr<Caller> caller = gate.CallerOf(uid);
  if (!caller.ok()) return std::nullopt;
  const auto found = limits.OfCaller(*caller, Limit::kBytesInFlight);
  if (!found.has_value()) return std::nullopt;
  return static_cast<uint64_t>(found->value);
}

// When connections end that nobody uses, or that nobody is at the other end of.
void SetTimes(const ApiOptions& options, grpc::ServerBuilder& builder) {
  for (const auto& [argument, time] :
       {std::pair(GRPC_ARG_MAX_CONNECTION_IDLE_MS, options.max_idle),
        std::pair(GRPC_ARG_KEEPALIVE_TIME_MS, options.keepalive_interval),
        std::pair(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, options.keepalive_timeout),
        std::pair(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                  options.least_ping_interval)}) {
    builder.AddChannelArgument(
        argument, static_cast<int>(absl::ToInt64Milliseconds(time)));
  }
}

static_assert(kMaxSyncThreads > static_cast<int>(OpenCallLimits{}.all));

// What sees each call before its handler.
std::vector<
    std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>
Interceptors(const ApiOptions& options, OpenCalls* open, const Peers* peers) {
  std::vector<
      std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>
      all;
  if (options.metrics != nullptr) {
    all = CallMetrics(*options.metrics, MethodNames());
  }
  all.push_back(LimitOpenCalls(open, peers));
  return all;
}

// Compressed messages are refused before they are unpacked: gRPC looks at a
// message's size only then.
void RefuseCompression(grpc::ServerBuilder& builder) {
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
}

}  // namespace

// Destroyed from the bottom up: the server before what it calls.
struct ApiServer::Parts {
  Parts(const ApiOptions& options, const ApiBackends& to,
        std::unique_ptr<LimitTable> table)
      : store(to.store),
        limit_table(std::move(table)),
        peers(LimitsOf(options)),
        gate(&peers, to.accounts, to.tokens, to.store),
        audit(to.store, AuditOptionsOf(options)),
        pump(options.stalled_reader_limit),
        calls{&gate, &work, &pump, &audit, &limits, options.unary_deadline},
        jobs({.engine = to.jobs,
              .disk = to.disk,
              .store = to.store,
              .inspector = to.datasets},
             options.state_dir, options.check_kept, calls),
        datasets(to.datasets, calls),
        checkpoints(to.jobs, to.disk, options.state_dir, calls),
        models(to.models, to.sampler, to.pulls, to.uploads, calls),
        plans(to.planner, calls),
        system({.engine = to.jobs,
                .disk = to.disk,
                .store = to.store,
                .doctor = to.doctor,
                .loans = to.loans},
               calls),
        accounts(to.accounts, to.tokens, limit_table.get(), to.disk, to.store,
                 calls),
        uploads(to.uploads, calls) {
    peers.LimitUnfinished(
        [this](uid_t uid) { return MostUnfinished(gate, limits, uid); });
    limits.SetOtherUse([engine = to.jobs, loans = to.loans] {
      return OtherUse(*engine, *loans);
    });
    if (to.uploads == nullptr) return;
    limits.SetOtherBytes([uploads = to.uploads](Database*, const Counted& of) {
      return static_cast<int64_t>(uploads->BytesOf(of.owner, of.project));
    });
  }

  JobStore* store;
  const std::unique_ptr<LimitTable> limit_table;
  LimitCheck limits{limit_table.get(), store};
  Peers peers;
  OpenCalls open_calls;
  Gate gate;
  AuditLog audit;
  StreamPump pump;
  CallQueue work;
  const CallDoor calls;
  JobService jobs;
  DatasetService datasets;
  CheckpointService checkpoints;
  ModelService models;
  PlanService plans;
  SystemService system;
  AccountService accounts;
  UploadService uploads;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<FrontDoor> door;
};

absl::StatusOr<std::string> SocketPath(const std::string& listen) {
  if (!absl::StartsWith(listen, "unix:") ||
      absl::StartsWith(listen, "unix:@")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--listen: \"", listen,
        "\" is not unix:PATH; --listen-tls=HOST:PORT is for the network"));
  }
  std::string path(absl::StripPrefix(listen, "unix:"));
  if (absl::StartsWith(path, "///")) path = path.substr(2);
  if (path.empty()) {
    return absl::InvalidArgumentError("--listen: unix: needs a path");
  }
  if (path.size() > kMaxSocketPathBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("--listen: the socket path has ", path.size(), " bytes, ",
                     kMaxSocketPathBytes, " is the most: ", path));
  }
  return path;
}

ApiServer::ApiServer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

absl::StatusOr<std::unique_ptr<ApiServer>> ApiServer::Start(
    const ApiOptions& options, const ApiBackends& backends) {
  ASSIGN_OR_RETURN(const std::string path, SocketPath(options.listen));
  ASSIGN_OR_RETURN(auto limits, LimitTable::Load(backends.store));
  auto parts = std::make_unique<Parts>(options, backends, std::move(limits));
  backends.loans->OnChange([jobs = backends.jobs](const DeviceLoanList& loans) {
    jobs->SetDeviceLoans(loans);
  });
  parts->limit_table->OnChange([jobs = backends.jobs](const LimitRows& rows) {
    jobs->SetSharing(SharingOf(rows));
  });
  ASSIGN_OR_RETURN(parts->door, FrontDoor::Listen(path, &parts->peers));
  if (options.listen_tls.has_value()) {
    RETURN_IF_ERROR(parts->door->ListenTls(*options.listen_tls, options.tls));
  }
  StreamPump* const pump = &parts->pump;
  backends.store->SetListener([pump] { pump->StoreChanged(); });

  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  builder.experimental().SetInterceptorCreators(
      Interceptors(options, &parts->open_calls, &parts->peers));
  builder.SetMaxReceiveMessageSize(kMaxReceiveBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                             kMaxStreamsPerConnection);
  SetTimes(options, builder);
  RefuseCompression(builder);
  grpc::ResourceQuota quota("api");
  quota.SetMaxThreads(kMaxSyncThreads);
  builder.SetResourceQuota(quota.Resize(kGrpcMemoryBytes));
  builder.RegisterService(&parts->jobs);
  builder.RegisterService(&parts->datasets);
  builder.RegisterService(&parts->checkpoints);
  builder.RegisterService(&parts->models);
  builder.RegisterService(&parts->plans);
  builder.RegisterService(&parts->system);
  builder.RegisterService(&parts->accounts);
  builder.RegisterService(&parts->uploads);
  parts->server = builder.BuildAndStart();
  if (parts->server == nullptr) {
    backends.store->SetListener(nullptr);
    return absl::InternalError("gRPC's server can't be started");
  }
  std::unique_ptr<ApiServer> out(new ApiServer(std::move(parts)));
  out->SetHealth(ApiHealth::kServing);
  out->parts_->door->Start([server = out->parts_->server.get()](int fd) {
    grpc::AddInsecureChannelFromFd(server, fd);
  });
  return out;
}

std::shared_ptr<grpc::Channel> ApiServer::ChannelOfNobody() {
  return parts_->server->InProcessChannel({});
}

std::optional<HostPort> ApiServer::tls_address() const {
  return parts_->door->tls_address();
}

void ApiServer::SetHealth(ApiHealth health) {
  grpc::HealthCheckServiceInterface* const service =
      parts_->server->GetHealthCheckService();
  ROUNDHOUSE_CHECK(service != nullptr);
  const bool serving = health == ApiHealth::kServing;
  service->SetServingStatus(serving);
  for (const char* name : kServices) {
    service->SetServingStatus(name, serving);
  }
}

void ApiServer::Shutdown(absl::Duration grace) {
  if (parts_->server == nullptr) return;
  // gRPC must be given no connection while it shuts down; those that there are
  // go on, so that calls are answered.
  parts_->door->StopAccepting();
  parts_->limits.Stop();
  parts_->server->Shutdown(absl::ToChronoTime(WallTime() + grace));
  parts_->store->SetListener(nullptr);
  // Our threads may still be on their way out of the last calls.
  parts_->work.Stop();
  parts_->plans.Stop();
  parts_->models.Stop();
  parts_->pump.Stop();
  parts_->audit.Stop();
  parts_->server.reset();
  parts_->door.reset();
}

ApiServer::~ApiServer() { Shutdown(absl::ZeroDuration()); }

}  // namespace roundhouse
