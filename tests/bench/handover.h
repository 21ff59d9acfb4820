// How long the hand-over of an event between two processes takes: from just
// before one raises a word (base/wire/words.h) to when the other, which slept
// on its doorbell, has seen it.
#ifndef ROUNDHOUSE_TESTS_BENCH_HANDOVER_H_
#define ROUNDHOUSE_TESTS_BENCH_HANDOVER_H_

#include <vector>

#include "absl/status/statusor.h"

namespace roundhouse::bench {

// Seconds of each of `count` hand-overs, half of them each way.  Forks.
// REQUIRES: this process has one thread; 2 <= count <= kMaxHandovers.
inline constexpr int kMaxHandovers = 1 << 20;
absl::StatusOr<std::vector<double>> MeasureHandovers(int count);

}  // namespace roundhouse::bench

#endif  // ROUNDHOUSE_TESTS_BENCH_HANDOVER_H_
