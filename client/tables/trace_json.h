// A timeline, of a planned round or of recorded steps, as trace events for
// Perfetto (ui.perfetto.dev) and chrome://tracing: a process for each device
// and one for the host, a track for each of their resources.
//
// Pure; thread-safe.
#ifndef ROUNDHOUSE_CLIENT_TABLES_TRACE_JSON_H_
#define ROUNDHOUSE_CLIENT_TABLES_TRACE_JSON_H_

#include <nlohmann/json.hpp>
#include <string>

#include "proto/roundhouse/v1/plan.pb.h"

namespace roundhouse::client {

// One JSON object with a newline at its end.  Times are microseconds; intervals
// without length are left out.  What names no resource or kind of the timeline
// is "?".  `about` is the file's "otherData".
std::string TraceJson(const v1::Timeline& timeline,
                      const nlohmann::ordered_json& about = nullptr);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_TABLES_TRACE_JSON_H_
