// The shares of the table, as the dispatcher takes them.
//
// Thread-safe.
#ifndef ROUNDHOUSE_SERVER_LIMITS_SHARE_WEIGHTS_H_
#define ROUNDHOUSE_SERVER_LIMITS_SHARE_WEIGHTS_H_

#include "scheduler/share/fair_shares.h"
#include "server/limits/limit_table.h"

namespace roundhouse {

ShareWeights ShareWeightsOf(const LimitRows& rows);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_LIMITS_SHARE_WEIGHTS_H_
