// Runs a unary call on the call queue and answers with its status.
#ifndef ROUNDHOUSE_SERVER_API_UNARY_CALL_H_
#define ROUNDHOUSE_SERVER_API_UNARY_CALL_H_

#include <exception>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/grpcpp.h"
#include "server/api/errors.h"
#include "server/door/call_queue.h"

namespace roundhouse {

// What `call` answers, a Status or a StatusOr.  A library that throws ends this
// call, not the daemon; the log says what it threw.
template <typename Call>
auto Guarded(const Call& call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::exception& thrown) {
    return absl::InternalError(absl::StrCat("exception: ", thrown.what()));
  }
}

// `call` fills the response; `resource` goes into error details.
inline grpc::ServerUnaryReactor* RunUnary(grpc::CallbackServerContext* context,
                                          CallQueue* queue,
                                          const std::string& resource,
                                          std::function<absl::Status()> call) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::Status taken =
      queue->Run(*context, [reactor, resource, call = std::move(call)] {
        reactor->Finish(ToGrpcStatus(Guarded(call), resource));
      });
  if (!taken.ok()) reactor->Finish(ToGrpcStatus(taken, resource));
  return reactor;
}

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_UNARY_CALL_H_
