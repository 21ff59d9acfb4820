// What every handler of the API shares: the gate that each call goes through,
// and for unary calls the queue that they run on.
#ifndef ROUNDHOUSE_SERVER_API_UNARY_CALL_H_
#define ROUNDHOUSE_SERVER_API_UNARY_CALL_H_

#include <exception>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "google/protobuf/message.h"
#include "grpcpp/grpcpp.h"
#include "server/access/gate.h"
#include "server/access/rules.h"
#include "server/api/errors.h"
#include "server/door/call_queue.h"

namespace roundhouse {

class StreamPump;

// What calls go through; all of it outlives the gRPC server.
struct CallDoor {
  const Gate* gate;
  CallQueue* queue;
  StreamPump* pump;  // null: the service has no streams
};

// Goes into details of errors: what the request names.
inline std::string ResourceOf(const google::protobuf::Message& request) {
  const Rule* const rule = RuleOf(request);
  return rule == nullptr ? "" : ResourceOf(*rule, request);
}

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

// `call` fills the response; it is made once the gate has let the caller in.
inline grpc::ServerUnaryReactor* RunUnary(
    grpc::CallbackServerContext* context, const CallDoor& door,
    const google::protobuf::Message* request,
    std::function<absl::Status(const Entered&)> call) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const std::string resource = ResourceOf(*request);
  const absl::Status taken =
      door.queue->Run(*context, [=, gate = door.gate, call = std::move(call)] {
        const auto answer = [&]() -> absl::Status {
          ASSIGN_OR_RETURN(const Entered entered,
                           gate->Enter(*context, *request));
          return call(entered);
        };
        reactor->Finish(ToGrpcStatus(Guarded(answer), resource));
      });
  if (!taken.ok()) reactor->Finish(ToGrpcStatus(taken, resource));
  return reactor;
}

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_UNARY_CALL_H_
