#include "server/api/api_server.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "base/status.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/health_check_service_interface.h"
#include "server/api/call_metrics.h"
#include "server/api/checkpoint_service.h"
#include "server/api/dataset_service.h"
#include "server/api/job_service.h"
#include "server/api/model_service.h"
#include "server/api/plan_service.h"
#include "server/api/stream_pump.h"
#include "server/api/system_service.h"
#include "server/pool/work_pool.h"

namespace roundhouse {
namespace {

constexpr mode_t kSocketMode = 0660;
constexpr size_t kGrpcMemoryBytes = 256 << 20;

bool SomeoneListens(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  struct sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, path.c_str(), path.size());
  const bool answered =
      connect(fd, reinterpret_cast<struct sockaddr*>(&address),
              sizeof(address)) == 0;
  close(fd);
  return answered;
}

absl::Status ClearSocketPath(const std::string& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("--listen: ", path, ": ", strerror(errno)));
  }
  if (!S_ISSOCK(info.st_mode)) {
    return absl::AlreadyExistsError(
        absl::StrCat("--listen: ", path, " is there and is no socket"));
  }
  if (SomeoneListens(path)) {
    return absl::AlreadyExistsError(
        absl::StrCat("--listen: another server listens on ", path));
  }
  if (unlink(path.c_str()) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--listen: the old socket ", path,
                     " can't be removed: ", strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace

// Destroyed from the bottom up: the server before what it calls.
struct ApiServer::Parts {
  Parts(const ApiOptions& options, const ApiBackends& to)
      : store(to.store),
        jobs(to.jobs, to.store, to.datasets, options.state_dir,
             options.check_kept, &work, &pump),
        datasets(to.datasets, &work),
        checkpoints(to.jobs, &pump),
        models(to.models, to.sampler, &work, &pump),
        plans(to.planner),
        system(to.jobs, to.store, &work) {}

  JobStore* store;
  StreamPump pump;
  WorkPool work;
  JobService jobs;
  DatasetService datasets;
  CheckpointService checkpoints;
  ModelService models;
  PlanService plans;
  SystemService system;
  std::unique_ptr<grpc::Server> server;
};

absl::StatusOr<std::string> SocketPath(const std::string& listen) {
  if (!absl::StartsWith(listen, "unix:") ||
      absl::StartsWith(listen, "unix:@")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--listen: \"", listen,
        "\" is not unix:PATH; there is no TCP listener until access tokens "
        "exist"));
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
  RETURN_IF_ERROR(ClearSocketPath(path));
  auto parts = std::make_unique<Parts>(options, backends);
  StreamPump* const pump = &parts->pump;
  backends.store->SetListener([pump] { pump->Wake(); });

  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  if (options.metrics != nullptr) {
    builder.experimental().SetInterceptorCreators(
        CallMetrics(*options.metrics));
  }
  builder.SetMaxReceiveMessageSize(kMaxReceiveBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                             kMaxStreamsPerConnection);
  grpc::ResourceQuota quota("api");
  builder.SetResourceQuota(quota.Resize(kGrpcMemoryBytes));
  builder.AddListeningPort(absl::StrCat("unix:", path),
                           grpc::InsecureServerCredentials());
  builder.RegisterService(&parts->jobs);
  builder.RegisterService(&parts->datasets);
  builder.RegisterService(&parts->checkpoints);
  builder.RegisterService(&parts->models);
  builder.RegisterService(&parts->plans);
  builder.RegisterService(&parts->system);
  // Nobody may connect between bind and chmod.
  const mode_t old_mask = umask(0777 & ~kSocketMode);
  parts->server = builder.BuildAndStart();
  umask(old_mask);
  std::unique_ptr<ApiServer> out(new ApiServer(std::move(parts)));
  if (out->parts_->server == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("--listen: can't listen on ", path,
                     "; is its folder there, and may this user write to it?"));
  }
  if (chmod(path.c_str(), kSocketMode) != 0) {
    return absl::InternalError(
        absl::StrCat("--listen: chmod ", path, ": ", strerror(errno)));
  }
  out->SetServing(true);
  return out;
}

void ApiServer::SetServing(bool serving) {
  grpc::HealthCheckServiceInterface* const health =
      parts_->server->GetHealthCheckService();
  ROUNDHOUSE_CHECK(health != nullptr);
  health->SetServingStatus(serving);
  for (const char* name :
       {"roundhouse.v1.FineTuningJobService", "roundhouse.v1.DatasetService",
        "roundhouse.v1.CheckpointService", "roundhouse.v1.ModelService",
        "roundhouse.v1.PlanService", "roundhouse.v1.SystemService"}) {
    health->SetServingStatus(name, serving);
  }
}

void ApiServer::Shutdown(absl::Duration grace) {
  if (parts_->server == nullptr) return;
  parts_->server->Shutdown(absl::ToChronoTime(absl::Now() + grace));
  parts_->store->SetListener(nullptr);
  // Our threads may still be on their way out of the last calls.
  parts_->work.Stop();
  parts_->plans.Stop();
  parts_->pump.Stop();
  parts_->server.reset();
}

ApiServer::~ApiServer() { Shutdown(absl::ZeroDuration()); }

}  // namespace roundhouse
