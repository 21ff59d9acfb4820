#include "scheduler/estimate/training_costs.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/model/parameters.h"
#include "scheduler/plan/plan.h"
#include "scheduler/simulate/device_memory.h"

namespace roundhouse {
namespace {

// The fit.  Dense blocks of at least kFullWidth reach the first two, narrower
// ones the share of their width: 8B, 32B and 1.7B in the measurements.
constexpr double kDenseForward = 0.612;
constexpr double kDenseBackward = 0.547;
constexpr double kFullWidth = 3443;
// Fits to 20B and 235B. The input gradient is 235B's, whose experts are frozen;
// the weight gradient is what is left of 20B's backward.
constexpr double kExpertsForward = 0.288;
constexpr double kExpertsInputGradient = 0.218;
constexpr double kExpertsWeightGradient = 0.123;

// Beyond this many bytes nothing is planned, and no sum overflows.
constexpr double kMostBytes = 1e15;

// The widest that a token goes through in any block.
int64_t MostActiveInner(const ModelShape& shape) {
  int64_t most = 0;
  for (int64_t layer = 0; layer < shape.layer_count; ++layer) {
    most = std::max(most, shape.ActiveInner(layer));
  }
  return most;
}

// Query-key pairs of one sequence with a window (w >= s: none).
double Pairs(double tokens, double window) {
  const double w = std::min(tokens, window);
  return w * (w + 1) / 2 + (tokens - w) * w;
}

struct Matrix {
  int64_t out;
  int64_t in;
};

Matrix MatrixOf(const ModelShape& shape, ParamRole role) {
  const int64_t hidden = shape.hidden_size;
  const int64_t query = shape.head_count * shape.head_dim;
  switch (role) {
    case ParamRole::kQ:
      return {query, hidden};
    case ParamRole::kO:
      return {hidden, query};
    case ParamRole::kGate:
    case ParamRole::kUp:
      return {shape.inner_size, hidden};
    case ParamRole::kDown:
      return {hidden, shape.inner_size};
    default:
      return {shape.kv_head_count * shape.head_dim, hidden};
  }
}

bool InMlp(ParamRole role) {
  return role == ParamRole::kGate || role == ParamRole::kUp ||
         role == ParamRole::kDown;
}

int64_t Nanoseconds(double flops, double tflops, double efficiency) {
  return std::max<int64_t>(1,
                           std::llround(flops / (tflops * efficiency) * 1e-3));
}

// Elements of a decoder layer's largest parameter: gate and up of all experts
// are one (base/model/parameters.h).
int64_t LargestParameter(const ModelShape& shape) {
  const int64_t query = shape.head_count * shape.head_dim;
  const int64_t experts = shape.mixture()
                              ? 2 * shape.expert_count * shape.inner_size
                              : shape.inner_size;
  return shape.hidden_size * std::max({query, experts, shape.dense_inner_size,
                                       shape.shared_inner_size});
}

// Everything that a token keeps of the largest block, as device_memory.h counts
// it.
int64_t BlockTokenBytes(const ModelShape& shape) {
  return 8 * shape.hidden_size +
         4 * (shape.head_count + shape.kv_head_count) * shape.head_dim +
         6 * MostActiveInner(shape);
}

BlockCosts BlockOf(const TrainingSetup& setup, double tflops, int64_t layer) {
  const ModelShape& shape = setup.shape;
  const double matrix = BlockMatrixFlops(setup, layer);
  const double attention = BlockAttentionFlops(setup, layer);
  const BlockEfficiency share = EfficiencyOf(shape, layer);
  const bool full = setup.method == TrainingMethod::kFull;
  const int64_t parameters = shape.LayerParameters(layer);
  const int64_t adapters = AdapterParameters(setup);
  BlockCosts block;
  block.forward_ns = Nanoseconds(matrix + attention, tflops, share.forward);
  block.backward_ns =
      Nanoseconds(matrix + 2 * attention, tflops, share.input_gradient) +
      (full ? Nanoseconds(matrix, tflops, share.weight_gradient) : 0);
  if (setup.layer_recompute) block.backward_ns += block.forward_ns;
  block.bytes = 2 * parameters + 4 * adapters;
  block.gradient_bytes = 2 * (full ? parameters : adapters);
  // With layer_recompute a layer of a stage keeps its input only; the eight
  // bytes a width that are counted still are more than that.
  if (!setup.layer_recompute) block.active_inner = shape.ActiveInner(layer);
  return block;
}

void SetHead(const TrainingSetup& setup, double tflops, ModelCosts* costs) {
  const double head = HeadFlops(setup);
  const bool full = setup.method == TrainingMethod::kFull;
  costs->head_forward_ns = Nanoseconds(head, tflops, kHeadEfficiency);
  costs->head_backward_ns =
      Nanoseconds((full ? 2 : 1) * head, tflops, kHeadEfficiency);
  costs->head_bytes = 2 * setup.shape.head_parameters();
  costs->head_gradient_bytes = full ? costs->head_bytes : 0;
}

}  // namespace

double TflopsOf(const DevicePreset& device, Accumulation accumulation) {
  return accumulation == Accumulation::kFp16 ? device.fp16_accumulate_tflops
                                             : device.fp32_accumulate_tflops;
}

absl::Status CheckSetup(const TrainingSetup& setup) {
  const ModelShape& shape = setup.shape;
  if (shape.layer_count >= kMaxPlanLayers) {
    return absl::InvalidArgumentError(absl::StrCat(
        "num_hidden_layers: ", shape.layer_count, " is more than the ",
        kMaxPlanLayers - 1, " that can be planned for"));
  }
  const double tokens = static_cast<double>(setup.sequence_tokens) *
                        static_cast<double>(setup.micro_batch_sequences);
  if (!(tokens >= 1 && tokens <= static_cast<double>(kMaxMicroBatchTokens))) {
    return absl::InvalidArgumentError(absl::StrCat(
        setup.sequence_tokens, " tokens in ", setup.micro_batch_sequences,
        " sequences: a micro-batch has 1 to ", kMaxMicroBatchTokens,
        " tokens"));
  }
  const double layers = static_cast<double>(shape.layer_count) + 2;
  const double activations =
      layers * tokens * static_cast<double>(BlockTokenBytes(shape));
  const double state = 32.0 * static_cast<double>(shape.parameter_count());
  if (activations <= kMostBytes && state <= kMostBytes) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the model's state (", state, " bytes) or a micro-batch's activations (",
      activations, " bytes) are more than can be planned for, ", kMostBytes));
}

int64_t AdapterParameters(const TrainingSetup& setup) {
  if (setup.method == TrainingMethod::kFull) return 0;
  int64_t count = 0;
  for (const ParamRole role : kLinearRoles) {
    if ((setup.lora_targets >> LinearIndex(role) & 1) == 0) continue;
    if (setup.shape.mixture() && InMlp(role)) continue;
    const auto [out, in] = MatrixOf(setup.shape, role);
    count += setup.lora_rank * (out + in);
  }
  return count;
}

int64_t TrainedParameters(const TrainingSetup& setup) {
  return setup.method == TrainingMethod::kFull
             ? setup.shape.parameter_count()
             : setup.shape.layer_count * AdapterParameters(setup);
}

Contributions ContributionsOf(const TrainingSetup& setup) {
  return setup.method == TrainingMethod::kFull ? setup.contributions
                                               : Contributions::kFp32;
}

double BlockMatrixFlops(const TrainingSetup& setup, int64_t layer) {
  return 2.0 * static_cast<double>(setup.micro_batch_tokens()) *
         static_cast<double>(setup.shape.ActiveMatrixElements(layer));
}

double BlockAttentionFlops(const TrainingSetup& setup, int64_t layer) {
  const ModelShape& shape = setup.shape;
  const auto tokens = static_cast<double>(setup.sequence_tokens);
  const int64_t window = shape.WindowOf(layer);
  const double pairs =
      Pairs(tokens, window > 0 ? static_cast<double>(window) : tokens);
  // Scores and weighted values: two products per pair.
  return 4.0 * static_cast<double>(setup.micro_batch_sequences) * pairs *
         static_cast<double>(shape.head_count * shape.head_dim);
}

double HeadFlops(const TrainingSetup& setup) {
  return 2.0 * static_cast<double>(setup.micro_batch_tokens()) *
         static_cast<double>(setup.shape.embedding_parameters());
}

BlockEfficiency EfficiencyOf(const ModelShape& shape, int64_t layer) {
  if (shape.HasExperts(layer)) {
    return {kExpertsForward, kExpertsInputGradient, kExpertsWeightGradient};
  }
  const double width =
      std::min(1.0, static_cast<double>(shape.hidden_size) / kFullWidth);
  return {kDenseForward * width, kDenseBackward * width,
          kDenseBackward * width};
}

ModelCosts CostsOf(const TrainingSetup& setup, const DevicePreset& device,
                   Accumulation accumulation) {
  const ModelShape& shape = setup.shape;
  const double tflops = TflopsOf(device, accumulation);
  ModelCosts costs;
  costs.name = shape.model_type;
  costs.layers = static_cast<int>(shape.layer_count);
  std::vector<BlockCosts> blocks;
  for (int64_t layer = 0; layer < shape.layer_count; ++layer) {
    blocks.push_back(BlockOf(setup, tflops, layer));
  }
  costs.SetBlocks(std::move(blocks));
  SetHead(setup, tflops, &costs);
  // BoundaryBytes() makes bytes of it again.
  costs.hop_ns = (2 * setup.micro_batch_tokens() * shape.hidden_size + 20) / 21;
  costs.tokens = setup.micro_batch_tokens();
  costs.hidden = shape.hidden_size;
  if (setup.layer_recompute) return costs;
  costs.heads = shape.head_count;
  costs.kv_heads = shape.kv_head_count;
  costs.head_dim = shape.head_dim;
  return costs;
}

int64_t DeviceReserveBytes(const TrainingSetup& setup) {
  const ModelShape& shape = setup.shape;
  const int64_t tokens = setup.micro_batch_tokens();
  const int64_t attention =
      4 * (shape.head_count + shape.kv_head_count) * shape.head_dim;
  int64_t inner = 6 * MostActiveInner(shape);
  if (shape.mixture()) {
    // The sum of all experts, and what one has that every token goes to
    // (base/model/working_memory.cc).
    const int64_t expert =
        std::max(12 * shape.inner_size + 2 * shape.hidden_size,
                 4 * shape.inner_size + 8 * shape.hidden_size);
    const int64_t mlp =
        std::max(shape.dense_inner_size, shape.shared_inner_size);
    inner = std::max(6 * mlp, 4 * shape.hidden_size + expert);
  }
  int64_t block = tokens * (std::max(inner, attention) + 4 * shape.hidden_size);
  if (setup.layer_recompute) {
    block += tokens * (BlockTokenBytes(shape) - 8 * shape.hidden_size);
  }
  if (setup.method == TrainingMethod::kFull) {
    // A layer's gradients, and one of them in fp32, are there when what it kept
    // of the micro-batch is gone.
    block += std::max<int64_t>(0, 2 * shape.most_layer_parameters() +
                                      4 * LargestParameter(shape) -
                                      tokens * BlockTokenBytes(shape));
  }
  // Logits and their gradient in bf16, beside those in fp32.
  const int64_t head =
      std::min(kHeadChunkTokens, tokens) * shape.vocab_size * 4 +
      tokens * 4 * shape.hidden_size;
  return kContextBytes + std::max(block, head);
}

int64_t LeastDeviceBytes(const ModelCosts& costs) {
  const int head = costs.head();
  const auto most = [&](auto of_layer) {
    return costs.Most(0, costs.layers - 1, of_layer);
  };
  const int64_t block_weights =
      most([&](int layer) { return costs.WeightBytes(layer); });
  const int64_t head_weights = costs.WeightBytes(head);
  const int64_t block_sums =
      most([&](int layer) { return SumBytes(costs, layer); });
  const int64_t head_sums = SumBytes(costs, head);
  const int64_t block_inner =
      most([&](int layer) { return ActivationBytes(costs, layer); });
  const int64_t before_head = block_weights + head_weights + block_inner;
  const int64_t in_head =
      head_weights + block_weights + head_sums + ActivationBytes(costs, head);
  const int64_t after_head = 2 * block_weights + block_sums +
                             std::max(block_sums, head_sums) + block_inner;
  return BoundaryBufferBytes(costs) +
         std::max({before_head, in_head, after_head});
}

}  // namespace roundhouse
