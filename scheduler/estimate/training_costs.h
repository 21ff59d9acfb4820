// What a micro-batch of a model costs on a device that is known by its data
// sheet only: ModelCosts from sizes, for the simulator and the search.
//
// Time is FLOPs over (the data sheet's dense 16-bit tensor rate times an
// efficiency).  The efficiencies are fitted to the layer times that RoundPipe's
// artifact measured on an RTX 4090 (scheduler/testdata/bubble_inputs.csv); they
// are within kFitTolerance of all of them.  Those runs multiplied in fp16 with
// fp16 accumulation (their scripts set allow_fp16_accumulation), which GeForce
// cards do at twice the rate of fp32 accumulation, so the share is of that
// rate.  Roundhouse accumulates in fp32: its prediction takes the same share of
// the slower rate, which is careful for GeForce cards, where memory traffic is
// part of the time and doesn't get slower.
//
// Pure functions; thread-safe.
#ifndef ROUNDHOUSE_SCHEDULER_ESTIMATE_TRAINING_COSTS_H_
#define ROUNDHOUSE_SCHEDULER_ESTIMATE_TRAINING_COSTS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "base/model/model_shape.h"
#include "base/model/parameters.h"
#include "scheduler/estimate/device_presets.h"
#include "scheduler/plan/model_costs.h"
#include "scheduler/simulate/host_work.h"

namespace roundhouse {

inline constexpr double kFitTolerance = 0.08;  // relative, of a layer's time

// What tensor operations add up in; kFp16 is what published numbers used.
enum class Accumulation { kFp32, kFp16 };
double TflopsOf(const DevicePreset& device, Accumulation accumulation);

struct TrainingSetup {
  ModelShape shape;
  TrainingMethod method = TrainingMethod::kFull;
  int64_t lora_rank = 8;              // of kLora
  uint32_t lora_targets = 0;          // bits of kLinearRoles
  int64_t sequence_tokens = 1024;     // s
  int64_t micro_batch_sequences = 1;  // b
  // Recompute layer by layer inside a stage, not the stage at once.
  bool layer_recompute = false;
  // Saving::every; 0: the most inputs that host memory has room for.
  int saved_every = 0;
  // For kFull only; sums of adapters are fp32.
  Contributions contributions = Contributions::kFp32;
  // Updates wait for the global norm.
  bool clips = true;

  int64_t micro_batch_tokens() const {
    return sequence_tokens * micro_batch_sequences;
  }
};

// INVALID_ARGUMENT for sizes that cannot be planned for: more decoder layers
// than a plan has, or bytes beyond any machine.
absl::Status CheckSetup(const TrainingSetup& setup);

// REQUIRES below: CheckSetup is OK.

// Parameters of one decoder layer's adapters (PEFT's: A and B of each target);
// 0 for kFull.  A mixture's are of its attention only.
int64_t AdapterParameters(const TrainingSetup& setup);
int64_t TrainedParameters(const TrainingSetup& setup);
Contributions ContributionsOf(const TrainingSetup& setup);

// FLOPs of one micro-batch, two for each multiply and add, in a decoder layer
// and in the head. Attention counts the pairs that it needs, a mixture the
// experts that a token takes. Adapters are left out.
double BlockMatrixFlops(const TrainingSetup& setup, int64_t layer);
double BlockAttentionFlops(const TrainingSetup& setup, int64_t layer);
double HeadFlops(const TrainingSetup& setup);

// Shares of the tensor rate that a decoder layer reaches.  Dense blocks gain
// with their width, experts stand for themselves.
struct BlockEfficiency {
  double forward = 0;
  double input_gradient = 0;
  double weight_gradient = 0;
};
BlockEfficiency EfficiencyOf(const ModelShape& shape, int64_t layer);
inline constexpr double kHeadEfficiency = 0.70;

// Weights in bf16 (adapters in fp32), activations in bf16.  A decoder layer's
// backward has no weight gradients where it is frozen; with layer_recompute it
// has a second forward pass in it.
ModelCosts CostsOf(const TrainingSetup& setup, const DevicePreset& device,
                   Accumulation accumulation);

// What a device holds beside what scheduler/simulate/device_memory.h counts:
// the gradients between operations while a block or the head runs backward,
// with layer_recompute the activations of the layer that runs, and
// kContextBytes.
int64_t DeviceReserveBytes(const TrainingSetup& setup);

// The driver's context and LibTorch's kernels: usual, not measured here.
inline constexpr int64_t kContextBytes = int64_t{512} << 20;

// The most that a device holds under the plan that needs least: one block a
// stage, the next one's weights going up, sums of the one before going down.
// Where blocks differ, as if all were the largest.
int64_t LeastDeviceBytes(const ModelCosts& costs);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_ESTIMATE_TRAINING_COSTS_H_
