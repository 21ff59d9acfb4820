// The longest sequence that can be trained on: one a micro-batch, one block a
// stage, so that a device holds one block's activations, until a device's or
// the host's memory ends.
//
// Pure function; thread-safe.
#ifndef ROUNDHOUSE_SCHEDULER_ESTIMATE_LONGEST_SEQUENCE_H_
#define ROUNDHOUSE_SCHEDULER_ESTIMATE_LONGEST_SEQUENCE_H_

#include <cstdint>

#include "scheduler/estimate/device_presets.h"
#include "scheduler/estimate/training_costs.h"

namespace roundhouse {

enum class SequenceLimit { kDeviceMemory, kHostMemory, kSearched };

struct LongestSequence {
  int64_t tokens = 0;                              // 0: not even one fits
  SequenceLimit limit = SequenceLimit::kSearched;  // what ends it

  friend bool operator==(const LongestSequence&,
                         const LongestSequence&) = default;
};
inline constexpr int64_t kMaxSearchedTokens = int64_t{1} << 24;

// What fits at `setup`'s length and micro-batch on `device`, in one number:
// the least that a plan needs there, reserve included.
int64_t DeviceNeedBytes(const TrainingSetup& setup, const DevicePreset& device);
// The host bytes that are needed with a block a stage, slots sent the least
// ahead.
int64_t HostNeedBytes(const TrainingSetup& setup, int device_count,
                      int64_t batch_sequences);

// `setup`'s own sequence and micro-batch don't matter.  host_memory_bytes 0:
// whatever it takes.  `device` is that of
// `device_count` which has the least memory.
LongestSequence FindLongestSequence(const TrainingSetup& setup,
                                    const DevicePreset& device,
                                    int device_count, int64_t batch_sequences,
                                    int64_t host_memory_bytes);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_ESTIMATE_LONGEST_SEQUENCE_H_
