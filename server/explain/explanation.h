// Why a job waits or is slow, of a snapshot: what the API answers.
//
// Jobs that whoever asks may not see have no name in it: what they hold and
// that they go first is said all the same.
//
// Pure; thread-safe.
#ifndef ROUNDHOUSE_SERVER_EXPLAIN_EXPLANATION_H_
#define ROUNDHOUSE_SERVER_EXPLAIN_EXPLANATION_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "proto/roundhouse/v1/explanation.pb.h"
#include "server/explain/pool_snapshot.h"

namespace roundhouse {

// Jobs that are named, of those before and of those that hold memory.
inline constexpr size_t kMostExplained = 10;

struct ExplanationAsker {
  // Whether he may see jobs of a project whole.
  std::function<bool(const std::string& project)> may_see;
};

// REQUIRES: snapshot.asked is a job.  `since`: when it came to its state.
v1::JobExplanation ExplanationOf(const PoolSnapshot& snapshot,
                                 std::optional<absl::Time> since,
                                 const ExplanationAsker& asker);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_EXPLAIN_EXPLANATION_H_
