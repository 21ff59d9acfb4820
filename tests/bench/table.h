// The benchmark's result as a Markdown table or as CSV.  Pure.
#ifndef ROUNDHOUSE_TESTS_BENCH_TABLE_H_
#define ROUNDHOUSE_TESTS_BENCH_TABLE_H_

#include <string>
#include <vector>

#include "tests/bench/statistics.h"

namespace roundhouse::bench {

// A number per run, of one quantity.
struct Quantity {
  std::string name;
  std::string unit;  // "us", "ms", "%", "ratio"
  std::vector<double> runs;
};

// | quantity | unit | median | least | greatest | runs |
std::string MarkdownTable(const std::vector<Quantity>& quantities);
// The same columns, as RFC 4180 has it.
std::string CsvTable(const std::vector<Quantity>& quantities);

}  // namespace roundhouse::bench

#endif  // ROUNDHOUSE_TESTS_BENCH_TABLE_H_
