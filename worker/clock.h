// CLOCK_MONOTONIC in nanoseconds: the times that base/wire's messages carry.
#ifndef ROUNDHOUSE_WORKER_CLOCK_H_
#define ROUNDHOUSE_WORKER_CLOCK_H_

#include <time.h>

#include <cstdint>

namespace roundhouse::worker {

inline int64_t MonotonicNow() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_CLOCK_H_
