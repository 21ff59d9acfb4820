// Order statistics for benchmark results.  Pure.
#ifndef ROUNDHOUSE_TESTS_BENCH_STATISTICS_H_
#define ROUNDHOUSE_TESTS_BENCH_STATISTICS_H_

#include <vector>

namespace roundhouse::bench {

// The value below which a share `q` of the samples lies, linear between the
// two nearest samples (type 7 of Hyndman & Fan, "Sample quantiles in
// statistical packages", 1996; what numpy does).
// REQUIRES: samples is not empty, no sample is NaN, 0 <= q <= 1 (checked).
double Quantile(std::vector<double> samples, double q);

// One number of each run: the median of the runs, the least, the greatest.
struct Spread {
  double median = 0;
  double low = 0;
  double high = 0;
};
// REQUIRES: runs is not empty, no run is NaN (checked).
Spread Summarize(const std::vector<double>& runs);

}  // namespace roundhouse::bench

#endif  // ROUNDHOUSE_TESTS_BENCH_STATISTICS_H_
