// How fast the copy queues (worker/transfer) of a CPU device move bytes between
// the arena and device memory, beside plain memcpy of the same bytes.
#ifndef ROUNDHOUSE_TESTS_BENCH_COPY_RATE_H_
#define ROUNDHOUSE_TESTS_BENCH_COPY_RATE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "base/wire/messages.h"

namespace roundhouse::bench {

struct CopyRateOptions {
  wire::Direction direction = wire::Direction::kH2D;
  uint64_t copy_bytes = 256 << 10;  // of one request
  int requests = 1;                 // given to the queue at once
  int repetitions = 100;
};

// Time of memcpy over time of the queue (from the first request to the last
// one's end), in each repetition; the two are made one after the other on the
// same memory.  1: the queue is as fast as memcpy.
absl::StatusOr<std::vector<double>> MeasureCopyRate(
    const CopyRateOptions& options);

}  // namespace roundhouse::bench

#endif  // ROUNDHOUSE_TESTS_BENCH_COPY_RATE_H_
