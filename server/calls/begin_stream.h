// How a call becomes a stream: who calls, a place, the gate, the caller's
// limits, then what the handler makes of it.
#ifndef ROUNDHOUSE_SERVER_CALLS_BEGIN_STREAM_H_
#define ROUNDHOUSE_SERVER_CALLS_BEGIN_STREAM_H_

#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "grpcpp/grpcpp.h"
#include "server/calls/call_audit.h"
#include "server/calls/errors.h"
#include "server/calls/stream_pump.h"
#include "server/calls/unary_call.h"

namespace roundhouse {

// What makes a stream of Response, or says why not.
template <typename Response>
using MadeStream = absl::StatusOr<std::shared_ptr<PumpedWriter<Response>>>;

// Answers a call with an error and nothing else, once the audit has it.
template <typename Response>
class RefusedStream final : public grpc::ServerWriteReactor<Response> {
 public:
  RefusedStream(const CallDoor& door, const Asker& asker,
                const google::protobuf::Message& request,
                const absl::Status& status) {
    AuditCall(door, asker, request, status, nullptr);
    this->Finish(ToGrpcStatus(status, ResourceOf(request)));
  }
  void OnDone() override { delete this; }
};

// Makes a stream, once the caller is known, has a place for one and the gate
// has let him in, and hands it to the pump and to gRPC.  Errors of `make` end
// the call.
template <typename Response>
grpc::ServerWriteReactor<Response>* BeginStream(
    const CallDoor& door, grpc::CallbackServerContext* context,
    const google::protobuf::Message& request, StreamKind kind,
    absl::FunctionRef<MadeStream<Response>(const Entered&)> make) {
  const CallOrigin origin = OriginOf(door, *context);
  const auto refuse = [&](const absl::Status& status) {
    return new RefusedStream<Response>(door, origin.asker, request, status);
  };
  if (!origin.caller.ok()) return refuse(origin.caller.status());
  absl::StatusOr<StreamPlace> place = door.pump->Take(origin.share, kind);
  if (!place.ok()) return refuse(place.status());
  const absl::StatusOr<Entered> entered = EnterCall(door, origin, request);
  if (!entered.ok()) return refuse(entered.status());
  absl::StatusOr<StreamTicket> ticket =
      door.limits->OpenStream(entered->caller);
  if (!ticket.ok()) return refuse(ticket.status());
  auto made = make(*entered);
  if (!made.ok()) return refuse(made.status());
  std::shared_ptr<PumpedWriter<Response>> stream = *std::move(made);
  PumpedWriter<Response>* const raw = stream.get();
  stream->Begin(*std::move(place), *std::move(ticket), *door.gate,
                entered->caller, ResourceOf(request),
                StreamAudit::Begin(door, origin.asker, request));
  door.pump->Add(std::move(stream));
  return raw;
}

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_CALLS_BEGIN_STREAM_H_
