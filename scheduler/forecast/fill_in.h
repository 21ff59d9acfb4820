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

// So many of those that fit are tried, in their order.
inline constexpr size_t kMostFillInTries = 8;

struct FillInQuestion {
  size_t first = 0;  // in the pool's queue: it waits for memory alone
  // The jobs behind it, in their order, that have a place, their memory and
  // their owners' leave now.
  std::vector<size_t> candidates;
  // When the first one was promised to start; none: it is promised now.
  std::optional<double> promised_seconds;
};

struct FillIn {
  // The one that goes ahead; none: the first one would start later.
  std::optional<size_t> job;
  // When the first one starts without it; none: not known.
  std::optional<double> first_start;
};
// REQUIRES: the pool's queue has all of them.
FillIn ChooseFillIn(const ForecastPool& pool, const FillInQuestion& question);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_FORECAST_FILL_IN_H_
