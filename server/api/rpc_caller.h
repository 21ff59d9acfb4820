// Calls any RPC of a server with any bytes, by its name, and knows which there
// are: what the server's own reflection lists.  For tests.
#ifndef ROUNDHOUSE_SERVER_API_RPC_CALLER_H_
#define ROUNDHOUSE_SERVER_API_RPC_CALLER_H_

#include <memory>
#include <string>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "grpcpp/grpcpp.h"

namespace roundhouse {

using RpcMethod = google::protobuf::MethodDescriptor;

// Every method of every roundhouse.v1 service that the server lists, by name.
// The program must have their descriptors; one that it lacks ends it.
std::vector<const RpcMethod*> ListRpcs(
    const std::shared_ptr<grpc::Channel>& channel);

// How one call went.
struct RpcEnd {
  grpc::Status status;
  std::vector<std::string> responses;  // serialized
};

// Sends `request` and reads until the server ends the call; a stream of many
// messages, or one that pauses, is cancelled.  Blocking; thread-safe.
RpcEnd CallRpc(const std::shared_ptr<grpc::Channel>& channel,
               const RpcMethod& method, const std::string& request);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_RPC_CALLER_H_
