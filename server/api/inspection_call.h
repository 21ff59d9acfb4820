// One unary call that asks the dataset inspector: the question is made on the
// call queue, the helper runs on the event loop, its answer is read on the call
// queue.  A client that goes away ends the helper.
#ifndef ROUNDHOUSE_SERVER_API_INSPECTION_CALL_H_
#define ROUNDHOUSE_SERVER_API_INSPECTION_CALL_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/grpcpp.h"
#include "server/calls/unary_call.h"
#include "server/dataset/dataset_inspector.h"
#include "server/door/call_queue.h"

namespace roundhouse {

// What is asked, before DatasetInspector::Check; an error ends the call.
using MakeQuestion =
    std::function<absl::StatusOr<DatasetQuestion>(const Entered&)>;
// Fills the response from the helper's answer.
using FillAnswer = std::function<absl::Status(const std::string&)>;

// The reactor deletes itself.  `inspector` outlives the call.
grpc::ServerUnaryReactor* RunInspection(
    DatasetInspector* inspector, const CallDoor& door,
    grpc::CallbackServerContext* context,
    const google::protobuf::Message* request, MakeQuestion question,
    FillAnswer fill);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_INSPECTION_CALL_H_
