// Whether a smaller job may go ahead of the first of the queue, which waits for
// its host memory ("fill-in").
//
// It may if, with it running under the shares, the first one is expected to
// start no later than it is without it, and no later than it was ever promised.
// A promise is the first expected start that the daemon knew of it, and never
// moves: where things go slower than was expected, and at the latest when it
// has passed, nobody goes ahead any more.  So all that went ahead of a job did
// so before one moment, and it waits for their ends at most.  What is not known
// is never early enough.
//
// Pure; thread-safe.
#ifndef ROUNDHOUSE_SCHEDULER_FORECAST_FILL_IN_H_
#define ROUNDHOUSE_SCHEDULER_FORECAST_FILL_IN_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "scheduler/forecast/pool_forecast.h"

namespace roundhouse {

// Of those that fit, in their order, so many are tried.
inline constexpr size_t kMostFillInTries = 8;

struct FillInQuestion {
  size_t first = 0;  // in the pool's queue: it waits for memory alone
  // Those behind it, in their order, that have a place, their memory and their
  // owners' leave now.
  std::vector<size_t> candidates;
  // When the first one was promised to start; not before now.
  double promised_seconds = 0;
};

// The one that goes ahead; none: the first one would start later.
// REQUIRES: the pool's queue has all of them.
std::optional<size_t> ChooseFillIn(const ForecastPool& pool,
                                   const FillInQuestion& question);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_FORECAST_FILL_IN_H_
