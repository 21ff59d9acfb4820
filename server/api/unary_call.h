// Runs a unary call on the work pool and answers with its status.
#ifndef ROUNDHOUSE_SERVER_API_UNARY_CALL_H_
#define ROUNDHOUSE_SERVER_API_UNARY_CALL_H_

#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "grpcpp/grpcpp.h"
#include "server/api/errors.h"
#include "server/pool/work_pool.h"

namespace roundhouse {

// `call` fills the response; `resource` goes into error details.
inline grpc::ServerUnaryReactor* RunUnary(grpc::CallbackServerContext* context,
                                          WorkPool* work,
                                          const std::string& resource,
                                          std::function<absl::Status()> call) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const bool taken = work->TryRun([reactor, resource, call = std::move(call)] {
    reactor->Finish(ToGrpcStatus(call(), resource));
  });
  if (!taken) {
    reactor->Finish(ToGrpcStatus(
        absl::UnavailableError("the server is busy; try again"), resource));
  }
  return reactor;
}

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_UNARY_CALL_H_
