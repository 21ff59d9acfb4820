#include "server/planning/slot_costs.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "absl/time/time.h"

namespace roundhouse {
namespace {

// From the fastest one up: a kind ends where a layer takes so much longer than
// the kind's fastest.
void LevelKinds(std::vector<double>& times) {
  std::vector<size_t> order(times.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return times[a] != times[b] ? times[a] < times[b] : a < b;
  });
  for (auto kind = order.begin(); kind != order.end();) {
    const double most = times[*kind] * kSameLayerTime;
    const auto end = std::find_if(
        kind, order.end(), [&](size_t layer) { return times[layer] > most; });
    const double total = std::accumulate(
        kind, end, 0.0,
        [&](double sum, size_t layer) { return sum + times[layer]; });
    const double mean = total / static_cast<double>(end - kind);
    for (; kind != end; ++kind) times[*kind] = mean;
  }
}

}  // namespace

std::vector<MicroBatchCost> MicroBatchCosts(const CostModel& measured) {
  if (!measured.training_measured()) return {};
  std::vector<double> forward;
  std::vector<double> backward;
  for (int layer = 0; layer < measured.layer_count(); ++layer) {
    // Forward slots of training alone never run the fused layers: until an
    // evaluation does, their cold values are bytes.
    forward.push_back(absl::ToDoubleNanoseconds(
        measured.forward_measured() ? measured.Forward(layer)
                                    : measured.Recompute(layer)));
    backward.push_back(absl::ToDoubleNanoseconds(measured.Backward(layer)));
  }
  LevelKinds(forward);
  LevelKinds(backward);
  std::vector<MicroBatchCost> costs;
  for (size_t layer = 0; layer < forward.size(); ++layer) {
    costs.push_back({forward[layer], backward[layer]});
  }
  return costs;
}

}  // namespace roundhouse
