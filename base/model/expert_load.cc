#include "base/model/expert_load.h"

#include <algorithm>
#include <cmath>

#include "base/log.h"

namespace roundhouse {

LayerLoad LoadOf(int layer, const std::vector<int64_t>& tokens) {
  LayerLoad load = {.layer = layer};
  double sum = 0;
  for (const int64_t count : tokens) sum += static_cast<double>(count);
  if (sum == 0) {
    load.unhit = static_cast<int64_t>(tokens.size());
    return load;
  }
  const auto experts = static_cast<double>(tokens.size());
  double entropy = 0;
  for (const int64_t count : tokens) {
    if (count == 0) {
      ++load.unhit;
      continue;
    }
    const double share = static_cast<double>(count) / sum;
    entropy -= share * std::log(share);
    load.max_over_mean = std::max(load.max_over_mean, share * experts);
  }
  load.entropy = tokens.size() > 1 ? entropy / std::log(experts) : 1;
  return load;
}

ExpertLoadSummary SummaryOf(const std::vector<LayerLoad>& layers) {
  ROUNDHOUSE_CHECK(!layers.empty());
  ExpertLoadSummary summary = {.entropy = layers.front().entropy};
  for (const LayerLoad& load : layers) {
    if (load.max_over_mean > summary.max_over_mean) {
      summary.max_over_mean = load.max_over_mean;
      summary.layer = load.layer;
    }
    summary.entropy = std::min(summary.entropy, load.entropy);
    summary.unhit += load.unhit;
  }
  return summary;
}

}  // namespace roundhouse
