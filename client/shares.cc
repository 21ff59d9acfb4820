#include "client/shares.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace roundhouse::client {

std::vector<int> WholePercents(std::vector<double> parts, int percents) {
  for (double& part : parts) part = part > 0 ? part : 0;
  const double sum = std::accumulate(parts.begin(), parts.end(), 0.0);
  std::vector<int> whole(parts.size(), 0);
  if (!(sum > 0) || !std::isfinite(sum)) return whole;
  std::vector<size_t> by_loss(parts.size());
  std::iota(by_loss.begin(), by_loss.end(), size_t{0});
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i] *= percents / sum;
    whole[i] = static_cast<int>(parts[i]);
    parts[i] -= whole[i];
  }
  std::stable_sort(by_loss.begin(), by_loss.end(),
                   [&](size_t a, size_t b) { return parts[a] > parts[b]; });
  int left = percents - std::accumulate(whole.begin(), whole.end(), 0);
  for (size_t i = 0; i < by_loss.size() && left > 0; ++i, --left) {
    ++whole[by_loss[i]];
  }
  return whole;
}

}  // namespace roundhouse::client
