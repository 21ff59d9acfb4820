// When jobs that wait start, and all of them end, if nobody comes, goes or
// changes anything: a fluid model of the pool.
//
// Events are starts and ends; between them each job goes at its shared rate
// (shared_rates.h).  What starts is decided as the daemon does it: those of the
// greatest class first, of these those that ran before, then those of the
// project that had least of the devices for its share, of its users of whoever
// had least for his, then the oldest.  Whoever has all that he may have is
// passed over.  The first of the others waits for a place and its memory, and
// those behind it wait with it.  Jobs of lesser classes give way to it: what
// follows a last step stands for what saving them takes, and they wait again.
//
// What it leaves out: memory in pieces, bases that jobs share, what a job of
// unknown length does (it goes on for ever), and device hours that are used up
// or come back.
//
// Pure; deterministic; thread-safe.  Times are seconds from now.
#ifndef ROUNDHOUSE_SCHEDULER_FORECAST_POOL_FORECAST_H_
#define ROUNDHOUSE_SCHEDULER_FORECAST_POOL_FORECAST_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/priority.h"
#include "scheduler/forecast/shared_rates.h"
#include "scheduler/share/fair_shares.h"
#include "scheduler/share/owner_limits.h"

namespace roundhouse {

// Jobs that wait beyond it are not looked at.
inline constexpr size_t kMostForecast = 256;

struct ForecastJob {
  JobOwner owner;
  Priority priority = Priority::kNormal;
  // Loading, then device time, then what follows the last step.  Device time
  // that is not known: it never ends.
  double loading_seconds = 0;
  std::optional<double> device_seconds;
  double most_devices = kAnyDevices;
  double ending_seconds = 0;
  // Host memory: what a job that runs gives back as it ends, and what one that
  // waits needs, which may be unknown.
  std::optional<uint64_t> host_bytes;
  // Whether one that runs gives back a place; one that waits with its memory
  // has none.
  enum class Place { kTaken, kNone } place = Place::kTaken;
  // One that waits and is passed over, whatever ends.
  enum class Start { kMay, kMayNot } start = Start::kMay;
  // Whether it is saved for a job of a greater class that needs its memory or
  // its place.  kDoes: it is being saved, and has no place; then it waits.
  enum class GivesWay { kMay, kMayNot, kDoes } gives_way = GivesWay::kMay;
  double reloading_seconds = 0;  // where it starts again after that
  bool ran = false;              // one that waits, and did so
  int64_t number = 0;            // of jobs, later ones have greater
};

struct ForecastPool {
  double devices = 0;
  ShareWeights weights = {};
  int64_t free_places = 0;
  uint64_t free_bytes = 0;
  OwnerLimits running_limits = {};
  OwnerLimits host_limits = {};
  OwnerUse running_use = {};
  OwnerUse host_use = {};
  // Device-seconds that count where it is decided who is first.
  std::map<std::string, double> project_use = {};
  std::map<std::pair<std::string, std::string>, double> user_use = {};
  std::vector<ForecastJob> running = {};
  std::vector<ForecastJob> queue = {};  // by age
  // In the queue: it stays the first of its class.
  std::optional<size_t> opening = {};
};

// Why a time is not known.
enum class Unknown {
  kNothing,   // it is known
  kNoDevice,  // no device is in use
  kLength,    // a job's, whose end it waits for, or its own
  kNeed,      // what a job that goes first, or it, needs of host memory
  kMayNot,    // ForecastJob::start
};

struct Expected {
  std::optional<double> start;  // 0 of one that runs
  std::optional<double> end;
  Unknown start_unknown = Unknown::kNothing;
  Unknown end_unknown = Unknown::kNothing;
};

struct Forecast {
  std::vector<Expected> running;
  std::vector<Expected> queue;
};

// `until`: it is enough to know when this one of the queue starts.
// REQUIRES: at most kMostForecast jobs wait.
Forecast ForecastOf(const ForecastPool& pool,
                    std::optional<size_t> until = std::nullopt);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_FORECAST_POOL_FORECAST_H_
