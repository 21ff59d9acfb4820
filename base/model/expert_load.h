// How evenly tokens are spread over the experts of layers.
#ifndef ROUNDHOUSE_BASE_MODEL_EXPERT_LOAD_H_
#define ROUNDHOUSE_BASE_MODEL_EXPERT_LOAD_H_

#include <cstdint>
#include <vector>

namespace roundhouse {

// One layer's.
struct LayerLoad {
  int layer = 0;
  // The tokens of the busiest expert over the mean of all: from 1, even, to the
  // number of experts over those a token goes to.
  double max_over_mean = 0;
  // The experts' shares have this entropy over the highest possible: 1 where
  // all have as many tokens, 0 where one has all.
  double entropy = 0;
  int64_t unhit = 0;  // experts without a token

  bool operator==(const LayerLoad&) const = default;
};

// `tokens` are those of each expert.  Without any token all are 0 but `unhit`.
LayerLoad LoadOf(int layer, const std::vector<int64_t>& tokens);

// A whole model's.
struct ExpertLoadSummary {
  double max_over_mean = 0;  // the highest of all layers
  int layer = 0;             // whose it is
  double entropy = 0;        // the lowest of all layers
  int64_t unhit = 0;         // experts without a token, of all layers

  bool operator==(const ExpertLoadSummary&) const = default;
};

// REQUIRES: there is a layer.
ExpertLoadSummary SummaryOf(const std::vector<LayerLoad>& layers);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_MODEL_EXPERT_LOAD_H_
