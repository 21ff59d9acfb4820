// What GetUsage answers.
//
// Thread-safe.  Blocks for a read of the rows that it asks for.
#ifndef ROUNDHOUSE_SERVER_USAGE_USAGE_ANSWER_H_
#define ROUNDHOUSE_SERVER_USAGE_USAGE_ANSWER_H_

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/roundhouse/v1/account.pb.h"
#include "server/store/store.h"

namespace roundhouse {

// Users, projects or jobs in an answer; those with the least are left out.
inline constexpr int kMaxUsageAnswer = 500;

// kInvalidArgument with the field; kDataLoss: a row is damaged.
absl::StatusOr<v1::GetUsageResponse> UsageAnswer(
    const JobStore& store, const v1::GetUsageRequest& request, absl::Time now);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_USAGE_USAGE_ANSWER_H_
