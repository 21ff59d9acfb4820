#include "scheduler/estimate/longest_sequence.h"

#include <algorithm>

#include "scheduler/estimate/host_bytes.h"
#include "scheduler/plan/auto_sizes.h"

namespace roundhouse {

int64_t DeviceNeedBytes(const TrainingSetup& setup,
                        const DevicePreset& device) {
  const ModelCosts costs = CostsOf(setup, device, Accumulation::kFp32);
  return LeastDeviceBytes(costs) + DeviceReserveBytes(setup);
}

int64_t HostNeedBytes(const TrainingSetup& setup, int device_count,
                      int64_t batch_sequences) {
  const int64_t micro_batches =
      (batch_sequences + setup.micro_batch_sequences - 1) /
      setup.micro_batch_sequences;
  const int64_t of_round = std::min(micro_batches, kAutoRoundMicroBatches);
  return HostBytesOf(setup, BlockByBlockTensors(setup), of_round,
                     LeastBlocks(setup, device_count),
                     (micro_batches + of_round - 1) / of_round)
      .total();
}

LongestSequence FindLongestSequence(const TrainingSetup& setup,
                                    const DevicePreset& device,
                                    int device_count, int64_t batch_sequences,
                                    int64_t host_memory_bytes) {
  TrainingSetup tried = setup;
  tried.micro_batch_sequences = 1;
  // What is in the way of `tokens`; kSearched: nothing.
  const auto limit_at = [&](int64_t tokens) {
    tried.sequence_tokens = tokens;
    const bool sizes = CheckSetup(tried).ok();
    if (!sizes || DeviceNeedBytes(tried, device) > device.memory_bytes) {
      return SequenceLimit::kDeviceMemory;
    }
    const bool host = host_memory_bytes == 0 ||
                      HostNeedBytes(tried, device_count, batch_sequences) <=
                          host_memory_bytes;
    return host ? SequenceLimit::kSearched : SequenceLimit::kHostMemory;
  };
  LongestSequence longest;
  longest.limit = limit_at(kMaxSearchedTokens);
  if (longest.limit == SequenceLimit::kSearched) {
    longest.tokens = kMaxSearchedTokens;
    return longest;
  }
  int64_t too_long = kMaxSearchedTokens;
  while (too_long - longest.tokens > 1) {
    const int64_t middle = longest.tokens + (too_long - longest.tokens) / 2;
    const SequenceLimit limit = limit_at(middle);
    if (limit == SequenceLimit::kSearched) {
      longest.tokens = middle;
    } else {
      too_long = middle;
      longest.limit = limit;
    }
  }
  return longest;
}

}  // namespace roundhouse
