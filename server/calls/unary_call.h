// What every handler of the API shares: the gate that each call goes through,
// and for unary calls the queue that they run on.
#ifndef ROUNDHOUSE_SERVER_CALLS_UNARY_CALL_H_
#define ROUNDHOUSE_SERVER_CALLS_UNARY_CALL_H_

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/status.h"
#include "google/protobuf/message.h"
#include "grpcpp/grpcpp.h"
#include "server/access/gate.h"
#include "server/access/rules.h"
#include "server/calls/errors.h"
#include "server/door/call_queue.h"
#include "server/door/peer.h"
#include "server/limits/limit_check.h"

namespace roundhouse {

class AuditLog;
class StreamPump;

// A call that waits longer for a thread is answered DEADLINE_EXCEEDED; clients
// may set shorter deadlines.
inline constexpr absl::Duration kUnaryDeadline = absl::Seconds(60);

// What calls go through; all of it outlives the gRPC server.
struct CallDoor {
  const Gate* gate;
  CallQueue* queue;
  StreamPump* pump;  // null: the service has no streams
  AuditLog* audit;
  LimitCheck* limits;
  absl::Duration unary_deadline = kUnaryDeadline;
};

// Who makes a call, noted as it comes in: his connection, by which he is known,
// may be gone before the call is done.
struct CallOrigin {
  absl::StatusOr<Caller> caller;  // or why he is not let in
  Asker asker;
  Peer share;  // of the queue and of the streams
};
Peer ShareOf(const Caller& caller);
CallOrigin OriginOf(const CallDoor& door,
                    const grpc::ServerContextBase& context);

// The gate, as the accounts are now, and one call more of the caller's.
inline absl::StatusOr<Entered> EnterCall(
    const CallDoor& door, const CallOrigin& origin,
    const google::protobuf::Message& request) {
  RETURN_IF_ERROR(origin.caller.status());
  ASSIGN_OR_RETURN(const Caller caller, door.gate->Now(*origin.caller));
  ASSIGN_OR_RETURN(Entered entered, door.gate->Enter(caller, request));
  RETURN_IF_ERROR(door.limits->CheckCall(entered.caller));
  return entered;
}

// Leaves the row that the audit has of a call, if it has one, which ended as
// `status` says.  Blocks for a disk when that is OK.
void AuditCall(const CallDoor& door, const Asker& asker,
               const google::protobuf::Message& request,
               const absl::Status& status,
               const google::protobuf::Message* made);

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

// `call` fills the response; it is made once the gate has let the caller in, on
// the queue, where whoever is nobody never waits, and answered once the audit
// has it.  `made`: the response of a call that makes what its `name` says, for
// the audit.
inline grpc::ServerUnaryReactor* RunUnary(
    grpc::CallbackServerContext* context, const CallDoor& door,
    const google::protobuf::Message* request,
    std::function<absl::Status(const Entered&)> call,
    const google::protobuf::Message* made = nullptr) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const std::string resource = ResourceOf(*request);
  const int64_t late_ns =
      MonotonicNs() + absl::ToInt64Nanoseconds(door.unary_deadline);
  const CallOrigin origin = OriginOf(door, *context);
  absl::Status taken = origin.caller.status();
  if (taken.ok()) {
    taken = door.queue->Run(origin.share, [=, call = std::move(call)] {
      const auto answer = [&]() -> absl::Status {
        if (MonotonicNs() > late_ns) {
          return absl::DeadlineExceededError(
              absl::StrCat("the call waited longer than ",
                           absl::FormatDuration(door.unary_deadline),
                           " for its turn; nothing was done"));
        }
        ASSIGN_OR_RETURN(const Entered entered,
                         EnterCall(door, origin, *request));
        return call(entered);
      };
      const absl::Status status = Guarded(answer);
      AuditCall(door, origin.asker, *request, status, made);
      reactor->Finish(ToGrpcStatus(status, resource));
    });
  }
  if (!taken.ok()) {
    AuditCall(door, origin.asker, *request, taken, nullptr);
    reactor->Finish(ToGrpcStatus(taken, resource));
  }
  return reactor;
}

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_CALLS_UNARY_CALL_H_
