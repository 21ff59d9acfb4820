#include "scheduler/share/parts_by_weight.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace roundhouse {

std::vector<double> PartsByWeight(double amount,
                                  const std::vector<Claim>& claims) {
  std::vector<size_t> order(claims.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // Whoever has enough with the least comes first.
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return claims[a].most / claims[a].weight <
           claims[b].most / claims[b].weight;
  });
  double weights = 0;
  for (const Claim& claim : claims) weights += claim.weight;
  std::vector<double> parts(claims.size());
  for (const size_t i : order) {
    const double fair = amount * std::min(1.0, claims[i].weight / weights);
    parts[i] = std::min(claims[i].most, fair);
    amount = std::max(0.0, amount - parts[i]);
    weights -= claims[i].weight;
  }
  return parts;
}

}  // namespace roundhouse
