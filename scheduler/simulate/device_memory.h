// What a part needs of its device's memory: weights, fp32 gradient sums, and
// activations with stage recomputation (a backward part keeps the inner
// activations of its stage for the micro-batch that runs).  Where contributions
// leave in the model's dtype, a part also holds rounded copies of what it
// sends, and of the part before it only those are left: half a sum more, half a
// sum less.
//
// Pure functions; thread-safe.
#ifndef ROUNDHOUSE_SCHEDULER_SIMULATE_DEVICE_MEMORY_H_
#define ROUNDHOUSE_SCHEDULER_SIMULATE_DEVICE_MEMORY_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/plan/machine.h"
#include "scheduler/plan/model_costs.h"
#include "scheduler/plan/part_time.h"

namespace roundhouse {

// Tokens whose logits exist at a time.
inline constexpr int64_t kHeadChunkTokens = 1024;

// Inner activations of one decoder block and micro-batch, with flash attention:
// in bf16 tokens * (8 hidden + 4 heads d + 4 kv_heads d + 6 inner experts).
// Of the head: fp32 logits and their gradient of one chunk.
int64_t ActivationBytes(const ModelCosts& costs, int layer);

// Boundary tensors of the running and the next micro-batch, up and down.
int64_t BoundaryBufferBytes(const ModelCosts& costs);

// One fp32 sum of a layer's gradient.
int64_t SumBytes(const ModelCosts& costs, int layer);

// Weights of the stage: also what the next part holds while this one runs.
int64_t PartWeightBytes(const Part& part, const ModelCosts& costs);

// Sums while the part runs: of g groups up a tree at most ceil(log2 g) + 1, or
// all that it sends at its end.
int64_t PartSumBytes(const Part& part, const ModelCosts& costs);
// Sums that go down while the next part runs.
int64_t PartDownBytes(const Part& part, const ModelCosts& costs);

// Inner activations of the micro-batch that runs, and boundaries.
int64_t PartActivationBytes(const Part& part, const ModelCosts& costs);

// The part between two like it: the next one's weights are there, the last
// one's sums go down.
int64_t PartPeakBytes(const Part& part, const ModelCosts& costs);

// The most that a device has to hold at a time, and in which slot; 0 for one
// that runs nothing.
struct DevicePeak {
  int64_t bytes = 0;
  int slot = 0;
};

// Per device: the part that runs, the weights of the `look_ahead` parts after
// it and the sums of the one before it.  `device_of`: of every part, or of
// every part of several rounds of them, the first round first (AssignDevices).
std::vector<DevicePeak> DevicePeaks(const std::vector<Part>& parts,
                                    const std::vector<int>& device_of,
                                    const ModelCosts& costs, int device_count,
                                    int look_ahead);

// Whether no device has the memory for some fused part alone: it can run
// nowhere.
bool FusedPartIsTooLarge(const std::vector<Part>& parts,
                         const ModelCosts& costs, const Machine& machine);

// Whether every device holds, at any time, what DevicePeaks says.
// RESOURCE_EXHAUSTED naming device, slot and bytes.
absl::Status CheckDeviceMemory(const std::vector<Part>& parts,
                               const std::vector<int>& device_of,
                               const ModelCosts& costs, const Machine& machine,
                               int look_ahead);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_SIMULATE_DEVICE_MEMORY_H_
