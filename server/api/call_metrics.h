// Counts and times every call of a server, of every service, as the metrics
// grpc_server_handled_total and grpc_server_handling_seconds.
#ifndef ROUNDHOUSE_SERVER_API_CALL_METRICS_H_
#define ROUNDHOUSE_SERVER_API_CALL_METRICS_H_

#include <memory>
#include <vector>

#include "grpcpp/support/server_interceptor.h"
#include "server/observe/metrics.h"

namespace roundhouse {

// Methods with series of their own, the first to be called; calls of others are
// not counted, so that no client makes series without end.
inline constexpr size_t kMaxMethodsWithMetrics = 64;

// For ServerBuilder::experimental().SetInterceptorCreators.  `metrics` outlives
// the server.
std::vector<
    std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>
CallMetrics(ServerMetrics& metrics);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_CALL_METRICS_H_
