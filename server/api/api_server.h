// The gRPC server: jobs, datasets, models, checkpoints, plans, accounts,
// uploads, system, health and reflection on a Unix socket and, if an admin asks
// for it, on a TLS port (server/door/front_door.h).
//
// There is no other TCP listener: loopback is shared by every user of a
// machine.  The socket's mode is 0660; its folder decides who gets in.
#ifndef ROUNDHOUSE_SERVER_API_API_SERVER_H_
#define ROUNDHOUSE_SERVER_API_API_SERVER_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/host_port.h"
#include "grpcpp/grpcpp.h"
#include "server/access/accounts.h"
#include "server/access/tokens.h"
#include "server/api/disk/disk_engine.h"
#include "server/api/job_engine.h"
#include "server/api/sample_engine.h"
#include "server/calls/stream_pump.h"
#include "server/calls/unary_call.h"
#include "server/dataset/dataset_inspector.h"
#include "server/devices/device_loans.h"
#include "server/doctor/doctor.h"
#include "server/door/front_door.h"
#include "server/door/peers.h"
#include "server/hub/model_pulls.h"
#include "server/observe/metrics.h"
#include "server/planning/model_catalog.h"
#include "server/planning/training_planner.h"
#include "server/store/store.h"
#include "server/tls/tls_context.h"
#include "server/uploads/uploads.h"

namespace roundhouse {

inline constexpr int kMaxReceiveBytes = 4 << 20;
inline constexpr int kMaxStreamsPerConnection = 100;
// A connection without calls is closed after this; clients connect again by
// themselves.
inline constexpr absl::Duration kMaxConnectionIdle = absl::Minutes(5);
// A connection with calls is asked whether anybody is there when nothing came
// for the interval, and ends when no answer comes within the timeout.
inline constexpr absl::Duration kKeepaliveInterval = absl::Seconds(60);
inline constexpr absl::Duration kKeepaliveTimeout = absl::Seconds(20);
// A client may ask the same of the server this often while it has calls; one
// that asks more is told to calm down (too_many_pings).  Ours asks every 30 s.
inline constexpr absl::Duration kLeastPingInterval = absl::Seconds(10);
// Threads of gRPC's own services that hold one for each call, as reflection
// does: more than OpenCallLimits lets be open, so that those are refused by
// name.
inline constexpr int kMaxSyncThreads = 160;
// Connections that are let in however few descriptors there are.
inline constexpr int kFewestConnections = 4;

struct ApiOptions {
  std::string listen;                  // "unix:PATH"
  std::optional<HostPort> listen_tls;  // for TLS too, with what is below
  const TlsContext* tls = nullptr;     // outlives the server
  std::string state_dir;               // Holds jobs/<uid>/.
  ServerMetrics* metrics = nullptr;    // Told of each call; none: nobody is.
  // Whether what the store is told will be found again: asked before and after
  // a job is stored, from any thread; its error is the answer.
  std::function<absl::Status()> check_kept = [] { return absl::OkStatus(); };
  PeerLimits limits;
  absl::Duration max_idle = kMaxConnectionIdle;
  absl::Duration stalled_reader_limit = kStalledReaderLimit;
  absl::Duration unary_deadline = kUnaryDeadline;
  absl::Duration keepalive_interval = kKeepaliveInterval;
  absl::Duration keepalive_timeout = kKeepaliveTimeout;
  absl::Duration least_ping_interval = kLeastPingInterval;
};

enum class ApiHealth { kServing, kNotServing };

// What answers the calls.
struct ApiBackends {
  JobEngine* jobs = nullptr;
  DiskEngine* disk = nullptr;
  JobStore* store = nullptr;
  Accounts* accounts = nullptr;
  Tokens* tokens = nullptr;
  DeviceLoans* loans = nullptr;
  DatasetInspector* datasets = nullptr;
  const ModelCatalog* models = nullptr;
  SampleEngine* sampler = nullptr;
  const TrainingPlanner* planner = nullptr;
  Doctor* doctor = nullptr;
  Uploads* uploads = nullptr;
  // Make `uploads`; the server stops them when it shuts down.
  ModelPulls* pulls = nullptr;
};

// The path of "unix:PATH".  kInvalidArgument for TCP, for abstract sockets and
// for a path that does not fit, by name.
absl::StatusOr<std::string> SocketPath(const std::string& listen);

// Owned by main; Start and Shutdown from one thread.
class ApiServer {
 public:
  // Serves when it returns.  Removes a socket that nobody listens on;
  // kAlreadyExists when a server does, or when something else has the name.
  // Takes the store's listener.  Every backend is there and outlives the
  // server.
  static absl::StatusOr<std::unique_ptr<ApiServer>> Start(
      const ApiOptions& options, const ApiBackends& backends);
  // Shutdown(absl::ZeroDuration()).
  ~ApiServer();
  ApiServer(const ApiServer&) = delete;
  ApiServer& operator=(const ApiServer&) = delete;

  // Where TLS is listened for, with the port that it is; nullopt: nowhere.
  std::optional<HostPort> tls_address() const;
  // For tests: a channel past the front door.  Nobody knows who calls over it,
  // so whatever does something for a caller refuses.
  std::shared_ptr<grpc::Channel> ChannelOfNobody();
  // What health says from now on; kServing after Start.
  void SetHealth(ApiHealth health);
  // Refuses new calls, gives running ones `grace`, then cancels them.
  void Shutdown(absl::Duration grace);

 private:
  struct Parts;
  explicit ApiServer(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_API_SERVER_H_
