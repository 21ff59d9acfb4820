// Counts and times every call of a server, of every service, as the metrics
// grpc_server_handled_total and grpc_server_handling_seconds.
#ifndef ROUNDHOUSE_SERVER_DOOR_CALL_METRICS_H_
#define ROUNDHOUSE_SERVER_DOOR_CALL_METRICS_H_

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "grpcpp/support/server_interceptor.h"
#include "server/observe/metrics.h"

namespace roundhouse {

// Service and method of calls that there is no method for: clients make up
// names without end, and none of them becomes a series.
inline constexpr char kUnknownMethod[] = "unknown";

// For ServerBuilder::experimental().SetInterceptorCreators.  `methods` are
// those with series of their own, as "/package.Service/Method".  `metrics`
// outlives the server.
std::vector<
    std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>
CallMetrics(ServerMetrics& metrics, std::set<std::string> methods);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DOOR_CALL_METRICS_H_
