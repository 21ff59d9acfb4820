// The fluid model of a snapshot (scheduler/forecast), and who may go ahead by
// it.
//
// Pure; thread-safe.
#ifndef ROUNDHOUSE_SERVER_EXPLAIN_POOL_MODEL_H_
#define ROUNDHOUSE_SERVER_EXPLAIN_POOL_MODEL_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "scheduler/forecast/pool_forecast.h"
#include "server/explain/pool_snapshot.h"

namespace roundhouse {

struct PoolModel {
  ForecastPool pool;
  // By places in the snapshot's queue: places in the pool's.
  std::vector<size_t> places;
};
// At most kMostForecast of the queue.
PoolModel ModelOf(const PoolSnapshot& snapshot);

// Which owners' limits let a job not run now; none: all do.
struct OwnersLimit {
  Limit limit = Limit::kRunningJobs;
  ReachedLimit reached;
  int64_t more = 1;  // that it asks for
};
std::vector<OwnersLimit> ReachedLimits(const PoolSnapshot& snapshot,
                                       const WaitingJob& job);
// What it needs beside what it shares.
uint64_t OwnBytes(const WaitingJob& job);
// Whether it has a need that is known, and can get that now.
bool Fits(const PoolSnapshot& snapshot, const WaitingJob& job);

// Whether one that runs is saved for one that waits, where that is enough.
bool MayGiveWay(const ActiveJob& job, const WaitingJob& waiting);

// Fill-in (scheduler/forecast/fill_in.h): `first`, a job of the snapshot's
// queue, waits for its memory, and was promised to start at `promised`.
struct GoingAhead {
  std::string job;  // "": none
  // When `first` is expected to start; none: not known.
  std::optional<absl::Time> expected;
};
// Who may: one of a lesser class would have to give way at once where `first`
// finds its memory free, but in pieces.
enum class MayGoAhead { kAll, kNoLesserClass };
GoingAhead WhoGoesAhead(const PoolSnapshot& snapshot, const std::string& first,
                        std::optional<absl::Time> promised,
                        MayGoAhead may = MayGoAhead::kAll);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_EXPLAIN_POOL_MODEL_H_
