// An error with details, for what a fake server answers.
#ifndef ROUNDHOUSE_CLIENT_TESTING_BAD_REQUEST_H_
#define ROUNDHOUSE_CLIENT_TESTING_BAD_REQUEST_H_

#include <grpcpp/support/status.h>

#include <string>

namespace roundhouse::client {

// INVALID_ARGUMENT with google.rpc.BadRequest in its details, as the daemon
// sends it.
grpc::Status BadRequestStatus(const std::string& message,
                              const std::string& field,
                              const std::string& description);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_TESTING_BAD_REQUEST_H_
