// Whether `why` agrees with what happens, over random queues in virtual time.
// ROUNDHOUSE_COUNT says how many of them, ROUNDHOUSE_SEED which is the first.

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "base/number_from_environment.h"
#include "gtest/gtest.h"
#include "tests/sim/queues.h"

namespace roundhouse::sim {
namespace {

double Quantile(const std::vector<double>& sorted, double part) {
  return sorted[static_cast<size_t>(part *
                                    static_cast<double>(sorted.size() - 1))];
}

TEST(WhyTest, AnswersAgreeWithWhatHappens) {
  const uint64_t first = NumberFromEnvironment("ROUNDHOUSE_SEED", 1);
  const uint64_t end = first + NumberFromEnvironment("ROUNDHOUSE_COUNT", 10);
  Queues::Counts all;
  for (uint64_t seed = first; seed < end; ++seed) {
    Queues queues(seed, NewRoot());
    const absl::Status status = queues.Run();
    if (!status.ok()) {
      for (const std::string& line : queues.log()) std::cerr << line << "\n";
    }
    ASSERT_TRUE(status.ok()) << "ROUNDHOUSE_SEED=" << seed << ": " << status;
    all.Add(queues.counts());
  }
  std::sort(all.errors.begin(), all.errors.end());
  std::cout << "seeds " << first << " to " << end - 1 << ": " << all.jobs
            << " jobs, " << all.answers << " answers (" << all.memory
            << " of memory, " << all.limits << " of limits, " << all.places
            << " of places), " << all.starts << " starts compared, "
            << all.ahead << " ahead of one that waits for memory, "
            << all.overtaken
            << " overtook by use; starts not known: " << all.unknown
            << ", known: " << all.errors.size();
  if (!all.errors.empty()) {
    std::cout << "; (real - expected) / (expected wait): p10 "
              << Quantile(all.errors, 0.1) << ", median "
              << Quantile(all.errors, 0.5) << ", p90 "
              << Quantile(all.errors, 0.9);
  }
  std::cout << "\n";
  // Else nothing was tested.
  EXPECT_GT(all.starts, 0);
  EXPECT_FALSE(all.errors.empty());
}

}  // namespace
}  // namespace roundhouse::sim
