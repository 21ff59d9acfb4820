// A finding as the API has it.  Pure; thread-safe.
#ifndef ROUNDHOUSE_SERVER_DOCTOR_FINDING_PROTO_H_
#define ROUNDHOUSE_SERVER_DOCTOR_FINDING_PROTO_H_

#include "proto/roundhouse/v1/system.pb.h"
#include "server/doctor/finding.h"

namespace roundhouse {

// What the system says is text of others (names of GPUs, of folders): bytes
// that are not UTF-8 are spelled out.
v1::Finding FindingToProto(const Finding& finding);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DOCTOR_FINDING_PROTO_H_
