#include "client/connection.h"

#include <grpc/grpc.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <string>

#include "absl/time/clock.h"
#include "base/version.h"

namespace roundhouse::client {
namespace {

// Our own retries decide how long to wait, so gRPC's backoff stays below them.
constexpr int kReconnectFirstMs = 100;
constexpr int kReconnectLongestMs = 1000;
// What gRPC calls the least backoff is how long a connection may take to come
// about; on a server that computes on every core that is more than moments.
constexpr int kConnectLongestMs = 10'000;

// gRPC's own shutdown may wait 10 s for a poller of its own when a call has
// just been cancelled.  An initialisation without its shutdown leaves that to
// the end of the process.
void KeepGrpcToTheEnd() {
  static const bool kept = (grpc_init(), true);
  (void)kept;
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& target) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectFirstMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectLongestMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectLongestMs);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetUserAgentPrefix(std::string("roundhouse/") + kVersion);
  return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(),
                                   arguments);
}

}  // namespace

Connection::Connection(const ServerAddress& address) : address_(address) {
  KeepGrpcToTheEnd();
  const std::shared_ptr<grpc::Channel> channel = MakeChannel(address.target);
  jobs_ = v1::FineTuningJobService::NewStub(channel);
  datasets_ = v1::DatasetService::NewStub(channel);
  checkpoints_ = v1::CheckpointService::NewStub(channel);
  models_ = v1::ModelService::NewStub(channel);
  accounts_ = v1::AccountService::NewStub(channel);
  uploads_ = v1::UploadService::NewStub(channel);
  plans_ = v1::PlanService::NewStub(channel);
  system_ = v1::SystemService::NewStub(channel);
}

UnaryContext::UnaryContext(Interrupt* interrupt, absl::Duration deadline)
    : scope_(interrupt, &context_) {
  if (deadline == absl::InfiniteDuration()) return;
  context_.set_deadline(absl::ToChronoTime(absl::Now() + deadline));
}

}  // namespace roundhouse::client
