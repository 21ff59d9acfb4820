// Calls that have to wait until somebody else's has ended.
#ifndef ROUNDHOUSE_CLIENT_PATIENT_CALL_H_
#define ROUNDHOUSE_CLIENT_PATIENT_CALL_H_

#include <grpcpp/support/status.h>

#include <functional>

#include "client/session.h"

namespace roundhouse::client {

// Calls, and again after a pause as long as the answer is ABORTED: the
// session's stream_retry says how often.  CANCELLED when the user interrupts a
// pause.
grpc::Status CallPatiently(Session* session,
                           const std::function<grpc::Status()>& call);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_PATIENT_CALL_H_
