// Since when a job is in its state, by its events.
#ifndef ROUNDHOUSE_SERVER_EXPLAIN_STATE_SINCE_H_
#define ROUNDHOUSE_SERVER_EXPLAIN_STATE_SINCE_H_

#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/store/store.h"

namespace roundhouse {

// When the job came to the state that `job` has; none: its events do not say.
// Thread-safe; blocks for a read.
absl::StatusOr<std::optional<absl::Time>> StateSince(const JobStore& store,
                                                     const JobRecord& job);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_EXPLAIN_STATE_SINCE_H_
