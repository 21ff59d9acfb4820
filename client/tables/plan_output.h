// What training would come to, for people.
//
// Names are somebody else's: what moves the cursor is not printed.  Pure;
// thread-safe.
#ifndef ROUNDHOUSE_CLIENT_TABLES_PLAN_OUTPUT_H_
#define ROUNDHOUSE_CLIENT_TABLES_PLAN_OUTPUT_H_

#include <cstdint>
#include <string>

#include "proto/roundhouse/v1/plan.pb.h"

namespace roundhouse::client {

// "key: value" lines, then a line for each device.  `host_memory_bytes` is what
// was asked for; 0: no limit.
std::string PlanText(const v1::PlanTrainingResponse& plan,
                     int64_t host_memory_bytes);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_TABLES_PLAN_OUTPUT_H_
