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
    if (spec.shape.size() == 2) elements += spec.element_count;
    // A token goes to some of the experts only.
    if (spec.shape.size() == 3) {
      elements += spec.element_count / config.mixture.expert_count *
                  config.mixture.experts_per_token;
    }
  }
  return elements;
}

// Query-key pairs of one sequence of `tokens`: each token attends to itself and
// to those before it, within the layer's window where it has one.
double AttentionPairs(const ModelConfig& config, int64_t layer,
                      int64_t tokens) {
  const int64_t reach = config.WindowOf(layer);
  const int64_t window = reach > 0 ? std::min(reach, tokens) : tokens;
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

}  // namespace roundhouse
