#include "tests/bench/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/log.h"

namespace roundhouse::bench {

double Quantile(std::vector<double> samples, double q) {
  ROUNDHOUSE_CHECK(!samples.empty() && q >= 0 && q <= 1);
  ROUNDHOUSE_CHECK(std::none_of(samples.begin(), samples.end(),
                                [](double x) { return std::isnan(x); }));
  std::sort(samples.begin(), samples.end());
  const double position = q * static_cast<double>(samples.size() - 1);
  const auto below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, samples.size() - 1);
  const double share = position - static_cast<double>(below);
  return samples[below] + share * (samples[above] - samples[below]);
}

Spread Summarize(const std::vector<double>& runs) {
  return {Quantile(runs, 0.5), Quantile(runs, 0), Quantile(runs, 1)};
}

}  // namespace roundhouse::bench
