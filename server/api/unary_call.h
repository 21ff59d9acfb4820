// Runs a unary call on the call queue and answers with its status.
#ifndef ROUNDHOUSE_SERVER_API_UNARY_CALL_H_
#define ROUNDHOUSE_SERVER_API_UNARY_CALL_H_

#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "grpcpp/grpcpp.h"
#include "server/api/call_queue.h"
#include "server/api/errors.h"

namespace roundhouse {

// `call` fills the response; `resource` goes into error details.
inline grpc::ServerUnaryReactor* RunUnary(grpc::CallbackServerContext* context,
                                          CallQueue* queue,
                                          const std::string& resource,
                                          std::function<absl::Status()> call) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::Status taken =
      queue->Run(*context, [reactor, resource, call = std::move(call)] {
        reactor->Finish(ToGrpcStatus(call(), resource));
      });
  if (!taken.ok()) reactor->Finish(ToGrpcStatus(taken, resource));
  return reactor;
}

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_UNARY_CALL_H_
