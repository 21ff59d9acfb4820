#include "server/door/open_calls.h"

#include "absl/strings/string_view.h"
#include "base/log.h"

namespace roundhouse {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::Interceptor;
using grpc::experimental::InterceptorBatchMethods;
using grpc::experimental::ServerInterceptorFactoryInterface;
using grpc::experimental::ServerRpcInfo;

constexpr absl::string_view kWatch = "/grpc.health.v1.Health/Watch";
constexpr absl::string_view kReflection = "/grpc.reflection.";

// Without the server's mutex: ending a call may run what ends another.
void End(grpc_call* call, const char* why) {
  if (call == nullptr) return;
  grpc_call_cancel_with_status(call, GRPC_STATUS_RESOURCE_EXHAUSTED, why,
                               nullptr);
}

class OpenCall final : public Interceptor {
 public:
  OpenCall(OpenCalls* open, const Peers* peers,
           grpc::ServerContextBase* context)
      : open_(open), peers_(peers), context_(context) {}
  ~OpenCall() override {
    if (number_.has_value()) open_->Leave(*number_);
    if (call_ != nullptr) grpc_call_unref(call_);
  }

  void Intercept(InterceptorBatchMethods* batch) override {
    if (batch->QueryInterceptionHookPoint(
            InterceptionHookPoints::POST_RECV_INITIAL_METADATA)) {
      Enter();
    }
    batch->Proceed();
  }

 private:
  void Enter() {
    if (call_ != nullptr) return;
    call_ = context_->c_call();
    grpc_call_ref(call_);
    // Whoever nobody knows shares a place as one address.
    const absl::StatusOr<Peer> peer = peers_->PeerOf(*context_);
    number_ = open_->Enter(peer.ok() ? *peer : Peer(), call_);
    if (number_.has_value()) return;
    End(call_,
        "too many health watches and reflections are open; ask "
        "grpc.health.v1.Health/Check, or end some");
  }

  OpenCalls* const open_;
  const Peers* const peers_;
  grpc::ServerContextBase* const context_;
  grpc_call* call_ = nullptr;
  std::optional<uint64_t> number_;
};

class OpenCallFactory final : public ServerInterceptorFactoryInterface {
 public:
  OpenCallFactory(OpenCalls* open, const Peers* peers)
      : open_(open), peers_(peers) {}

  Interceptor* CreateServerInterceptor(ServerRpcInfo* info) override {
    const absl::string_view method =
        info->method() == nullptr ? "" : info->method();
    const bool stays =
        method == kWatch || method.substr(0, kReflection.size()) == kReflection;
    if (!stays) return nullptr;
    return new OpenCall(open_, peers_, info->server_context());
  }

 private:
  OpenCalls* const open_;
  const Peers* const peers_;
};

}  // namespace

OpenCalls::~OpenCalls() {
  MutexLock lock(mutex_);
  ROUNDHOUSE_CHECK(open_.empty());
}

std::optional<uint64_t> OpenCalls::Enter(const Peer& peer, grpc_call* call) {
  const int64_t now_ns = clock_.MonotonicNs();
  const bool address = !peer.uid.has_value();
  grpc_call* ended = nullptr;
  uint64_t number = 0;
  {
    MutexLock lock(mutex_);
    size_t own = 0;
    size_t addresses = 0;
    for (const auto& [key, open] : open_) {
      own += open.peer == peer ? 1 : 0;
      addresses += open.peer.uid.has_value() ? 0 : 1;
    }
    const bool own_full =
        own >= (address ? limits_.each_address : limits_.each_user);
    const bool addresses_full = address && addresses >= limits_.addresses;
    if (own_full || addresses_full || open_.size() >= limits_.all) {
      // The oldest whose end makes room.
      auto oldest = open_.begin();
      while (oldest != open_.end() &&
             ((own_full && oldest->second.peer != peer) ||
              (address && oldest->second.peer.uid.has_value()))) {
        ++oldest;
      }
      if (oldest == open_.end() ||
          now_ns - oldest->second.begun_ns <
              absl::ToInt64Nanoseconds(kOpenCallLifetime)) {
        return std::nullopt;
      }
      ended = oldest->second.call;
      if (ended != nullptr) grpc_call_ref(ended);
      open_.erase(oldest);
    }
    number = next_++;
    open_[number] = {.peer = peer, .call = call, .begun_ns = now_ns};
  }
  End(ended, "this was open for long, and others wait; call again");
  if (ended != nullptr) grpc_call_unref(ended);
  return number;
}

void OpenCalls::Leave(uint64_t number) {
  MutexLock lock(mutex_);
  open_.erase(number);
}

std::unique_ptr<ServerInterceptorFactoryInterface> LimitOpenCalls(
    OpenCalls* open, const Peers* peers) {
  return std::make_unique<OpenCallFactory>(open, peers);
}

}  // namespace roundhouse
