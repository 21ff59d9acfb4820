#include "base/model/costs.h"

#include <algorithm>

#include "base/limits.h"
#include "base/log.h"
#include "base/model/parameters.h"

namespace roundhouse {
namespace {

bool IsHead(const ModelConfig& config, int64_t layer) {
  ROUNDHOUSE_CHECK(layer >= 0 && layer <= config.layer_count) << layer;
  return layer == config.layer_count;
}

uint64_t TokenCount(const BatchShape& batch) {
  ROUNDHOUSE_CHECK(batch.sequences >= 1 && batch.tokens >= 1);
  ROUNDHOUSE_CHECK(batch.sequences <= kMaxMicroBatchTokens / batch.tokens)
      << batch.sequences << " x " << batch.tokens;
  return static_cast<uint64_t>(batch.sequences * batch.tokens);
}

// Elements of the layer's matrices: each is multiplied once per token.
int64_t MatrixElements(const ModelConfig& config, int64_t layer) {
  if (IsHead(config, layer)) return config.vocab_size * config.hidden_size;
  int64_t elements = 0;
  for (const ParameterSpec& spec : ModelUnit(config, layer + 1).parameters) {
    if (spec.shape.size() > 1) elements += spec.element_count;
  }
  return elements;
}

// Query-key pairs of one sequence of `tokens`: each token attends to itself and
// to those before it, within the layer's window where it has one.
double AttentionPairs(const ModelConfig& config, int64_t layer,
                      int64_t tokens) {
  const bool slides = config.sliding_window > 0 &&
                      layer >= config.first_sliding_layer &&
                      tokens > config.sliding_window;
  const int64_t window = slides ? config.sliding_window : tokens;
  const double rising = static_cast<double>(window) * (window + 1) / 2;
  return rising + static_cast<double>(tokens - window) * window;
}

}  // namespace

int64_t LayerParameterCount(const ModelConfig& config, int64_t layer) {
  int64_t count = 0;
  for (int unit : UnitsOfLayer(config, layer)) {
    for (const ParameterSpec& spec : ModelUnit(config, unit).parameters) {
      count += spec.element_count;
    }
  }
  return count;
}

uint64_t LayerWeightBytes(const ModelConfig& config, int64_t layer,
                          DType dtype) {
  uint64_t bytes = 0;
  for (int unit : UnitsOfLayer(config, layer)) {
    bytes += ModelUnit(config, unit).element_count * DTypeBytes(dtype);
  }
  return bytes;
}

double LayerForwardFlops(const ModelConfig& config, int64_t layer,
                         const BatchShape& batch) {
  const double tokens = static_cast<double>(TokenCount(batch));
  double flops = 2.0 * tokens * MatrixElements(config, layer);
  if (!IsHead(config, layer)) {
    // Scores and weighted values: two products per query-key pair.
    const double pairs =
        batch.sequences * AttentionPairs(config, layer, batch.tokens);
    flops += 2 * 2.0 * pairs * config.head_count * config.head_dim;
  }
  return flops;
}

double ModelTrainingFlops(const ModelConfig& config, const BatchShape& batch) {
  double forward = 0;
  for (int64_t layer = 0; layer <= config.layer_count; ++layer) {
    forward += LayerForwardFlops(config, layer, batch);
  }
  return 3 * forward;
}

uint64_t HiddenStateBytes(const ModelConfig& config, const BatchShape& batch,
                          DType dtype) {
  return TokenCount(batch) * config.hidden_size * DTypeBytes(dtype);
}

uint64_t LayerActivationBytes(const ModelConfig& config, int64_t layer,
                              const BatchShape& batch, DType dtype) {
  const uint64_t hidden = HiddenStateBytes(config, batch, dtype);
  if (IsHead(config, layer)) return 2 * hidden;
  const uint64_t heads = config.head_count + config.kv_head_count;
  const uint64_t inner =
      2 * heads * config.head_dim + 3 * config.intermediate_size;
  return 4 * hidden + TokenCount(batch) * inner * DTypeBytes(dtype);
}

uint64_t HeadChunkBytes(const ModelConfig& config, int64_t rows, DType dtype) {
  ROUNDHOUSE_CHECK(rows >= 1 && rows <= kMaxMicroBatchTokens) << rows;
  const uint64_t logits = static_cast<uint64_t>(rows) * config.vocab_size;
  return 2 * logits * (DTypeBytes(dtype) + DTypeBytes(DType::kF32));
}

uint64_t StageActivationBytes(const ModelConfig& config, int64_t first,
                              int64_t last, const BatchShape& batch,
                              DType dtype, Recompute recompute) {
  ROUNDHOUSE_CHECK(first <= last) << first << " " << last;
  uint64_t sum = 0;
  uint64_t largest = 0;
  for (int64_t layer = first; layer <= last; ++layer) {
    const uint64_t bytes = LayerActivationBytes(config, layer, batch, dtype);
    sum += bytes;
    largest = std::max(largest, bytes);
  }
  if (recompute == Recompute::kStage) return sum;
  return largest + (last - first + 1) * HiddenStateBytes(config, batch, dtype);
}

}  // namespace roundhouse
