// What `roundhouse doctor` finds on this side of the connection, and how
// findings of both sides look.
//
// The checks are pure, so that a test shows each verdict; thread-safe.
#ifndef ROUNDHOUSE_CLIENT_TABLES_DOCTOR_OUTPUT_H_
#define ROUNDHOUSE_CLIENT_TABLES_DOCTOR_OUTPUT_H_

#include <grpcpp/support/status.h>

#include <string>

#include "absl/time/time.h"
#include "client/server_address.h"
#include "proto/roundhouse/v1/system.pb.h"

namespace roundhouse::client {

// Clocks that differ by more confuse logs and the expiry of what has one.
inline constexpr absl::Duration kMostClockDifference = absl::Seconds(30);

v1::Finding CheckAddress(const ServerAddress& address);

// `status` of the first call.  What to do where no daemon answers are commands
// of the server's admin.
v1::Finding CheckConnection(const grpc::Status& status,
                            const ServerAddress& address);

v1::Finding CheckVersions(const std::string& client, const std::string& server);

// The server's clock was read between `sent` and `received` of this one.
v1::Finding CheckClocks(absl::Time sent, absl::Time received,
                        absl::Time server);

// UNIMPLEMENTED, PERMISSION_DENIED ...: why there are none of the server's.
v1::Finding CheckDiagnosis(const grpc::Status& status);

// A line for each finding, its remedy below it.
std::string DiagnosisText(const v1::Diagnosis& diagnosis);
bool HasProblem(const v1::Diagnosis& diagnosis);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_TABLES_DOCTOR_OUTPUT_H_
