// Spans of time as people write them on a command line: "30m", "12h", "90d".
//
// Pure; thread-safe.
#ifndef ROUNDHOUSE_CLIENT_TIME_SPAN_H_
#define ROUNDHOUSE_CLIENT_TIME_SPAN_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace roundhouse::client {

inline constexpr int kMostDays = 3650;

// Whole minutes, hours or days, from `least` to kMostDays.  kInvalidArgument
// names the flag.
absl::StatusOr<absl::Duration> ParseTimeSpan(
    const std::string& flag, const std::string& text,
    absl::Duration least = absl::Hours(1));

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_TIME_SPAN_H_
