// The streams that gRPC's own services keep open: health's Watch and server
// reflection.  Whoever is connected may have them, with no token, and each
// costs memory, reflection a thread too; so they have limits of their own.
//
// One that has been open for kOpenCallLifetime gives way to whoever finds no
// place; before that, whoever finds none is refused.
//
// Thread-safe.
#ifndef ROUNDHOUSE_SERVER_DOOR_OPEN_CALLS_H_
#define ROUNDHOUSE_SERVER_DOOR_OPEN_CALLS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "grpc/grpc.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/support/server_interceptor.h"
#include "server/door/peer.h"
#include "server/door/peers.h"

namespace roundhouse {

inline constexpr absl::Duration kOpenCallLifetime = absl::Minutes(1);

struct OpenCallLimits {
  size_t all = 128;
  size_t addresses = 32;  // of all addresses together
  size_t each_user = 16;
  size_t each_address = 4;
};

class OpenCalls {
 public:
  explicit OpenCalls(const OpenCallLimits& limits = {},
                     const Clock& clock = SystemClock())
      : limits_(limits), clock_(clock) {}
  // REQUIRES: every call has left.
  ~OpenCalls();
  OpenCalls(const OpenCalls&) = delete;
  OpenCalls& operator=(const OpenCalls&) = delete;

  // A number for Leave; nullopt: `peer` has no place for another one.  What
  // gives way for it is cancelled.  `call` lives until Leave; null: a test's.
  std::optional<uint64_t> Enter(const Peer& peer, grpc_call* call);
  void Leave(uint64_t number);

 private:
  struct Open {
    Peer peer;
    grpc_call* call = nullptr;
    int64_t begun_ns = 0;
  };

  const OpenCallLimits limits_;
  const Clock& clock_;
  Mutex mutex_;
  uint64_t next_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, Open> open_ ABSL_GUARDED_BY(mutex_);  // oldest first
};

// What makes gRPC ask `open` about each of those calls; both outlive the
// server.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
LimitOpenCalls(OpenCalls* open, const Peers* peers);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DOOR_OPEN_CALLS_H_
