// What `auto` stands for in a job file and in a question about one.
//
// Pure.
#ifndef ROUNDHOUSE_SCHEDULER_PLAN_AUTO_SIZES_H_
#define ROUNDHOUSE_SCHEDULER_PLAN_AUTO_SIZES_H_

#include <algorithm>
#include <cstdint>

namespace roundhouse {

// micro_batches_per_round, at most: a longer step is several rounds.
inline constexpr int64_t kAutoRoundMicroBatches = 32;

// saved_inputs "every N", at most.
inline constexpr int kMostSavedEvery = 64;

// micro_batch_size: the largest power of two up to 8 that gives every device
// two micro-batches of a step, at least 1.  REQUIRES: device_count >= 1.
inline int64_t AutoMicroBatchSize(int64_t batch_size, int64_t device_count) {
  constexpr int64_t kMost = 8;
  const int64_t room = batch_size / (2 * device_count);
  int64_t size = 1;
  while (size * 2 <= std::min(room, kMost)) size *= 2;
  return size;
}

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_PLAN_AUTO_SIZES_H_
