// Host memory of a job that is planned for, by what takes it.  Bytes per
// parameter are those of the daemon's training state (docs/design/memory.md),
// in bf16; buffers are those of its rounds.
//
// Pure functions; thread-safe.
#ifndef ROUNDHOUSE_SCHEDULER_ESTIMATE_HOST_BYTES_H_
#define ROUNDHOUSE_SCHEDULER_ESTIMATE_HOST_BYTES_H_

#include <cstdint>

#include "scheduler/estimate/training_costs.h"
#include "scheduler/plan/boundary_tensors.h"
#include "scheduler/plan/contribution_blocks.h"
#include "scheduler/plan/plan.h"

namespace roundhouse {

// Bytes for each parameter that trains: compute weights 2, master 4, moments 8,
// gradient sum 4.
inline constexpr int64_t kFullStateBytes = 18;
// Bytes for each parameter of an adapter, whose compute weights are fp32.
inline constexpr int64_t kAdapterStateBytes = 20;
// The gradient sum's share of these bytes. A step of one round without clipping
// keeps sums of the embedding only.
inline constexpr int64_t kSumBytes = 4;
inline constexpr int64_t kFrozenBytes = 2;
// Bytes for each parameter in a sum on its way to a reduction.
inline constexpr int64_t kFp32ContributionBytes = 4;
inline constexpr int64_t kFastContributionBytes = 2;

struct HostMemory {
  int64_t base = 0;           // frozen weights, shared by jobs on them
  int64_t state = 0;          // of what trains
  int64_t boundaries = 0;     // activations and gradients between stages
  int64_t contributions = 0;  // sums on their way to a reduction

  int64_t total() const { return base + state + boundaries + contributions; }
};

// Whether anybody reads the gradient of the embedding's rows.
RowGradient RowGradientOf(const TrainingSetup& setup);
// Bytes of one activation or gradient between stages.
int64_t BoundaryBytes(const TrainingSetup& setup);
// Tensors between stages of each micro-batch when every stage is one block,
// slots are sent the least ahead, and the fewest inputs are kept that the setup
// allows.
int64_t BlockByBlockTensors(const TrainingSetup& setup);

// The blocks of a plan with such stages and every slot one device wide: the
// fewest.
ContributionBlocks LeastBlocks(const TrainingSetup& setup, int device_count);

// With room for `tensors` between stages of each of a round's micro-batches
// (scheduler/plan/boundary_tensors.h); steps are of `rounds`.
HostMemory HostBytesOf(const TrainingSetup& setup, int64_t tensors,
                       int64_t round_micro_batches,
                       const ContributionBlocks& blocks, int64_t rounds = 1);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_ESTIMATE_HOST_BYTES_H_
