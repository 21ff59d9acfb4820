// What ListLimits answers.
//
// Thread-safe.  Reads the store.
#ifndef ROUNDHOUSE_SERVER_LIMITS_LIMIT_ANSWERS_H_
#define ROUNDHOUSE_SERVER_LIMITS_LIMIT_ANSWERS_H_

#include "absl/status/statusor.h"
#include "proto/roundhouse/v1/account.pb.h"
#include "server/access/accounts.h"
#include "server/access/caller.h"
#include "server/limits/limit_check.h"
#include "server/limits/limit_table.h"

namespace roundhouse {

// What limits are read from.
struct LimitSources {
  const LimitTable& table;
  const LimitCheck& check;
};

// The limits that hold for `caller`, with what he, his projects and all use.
absl::StatusOr<v1::ListLimitsResponse> LimitsOfCaller(
    const LimitSources& sources, const Caller& caller);
// Every row, and the constants of limits that nobody set for everybody.
absl::StatusOr<v1::ListLimitsResponse> AllLimits(const LimitSources& sources);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_LIMITS_LIMIT_ANSWERS_H_
