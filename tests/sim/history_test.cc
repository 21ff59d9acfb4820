// Random histories of a server in virtual time.  ROUNDHOUSE_COUNT says how many
// of them, ROUNDHOUSE_SEED which is the first.

#include "tests/sim/history.h"

#include <iostream>
#include <string>

#include "base/number_from_environment.h"
#include "gtest/gtest.h"

namespace roundhouse::sim {
namespace {

constexpr uint64_t kParts = 4;  // that may run side by side

class HistoryTest : public testing::TestWithParam<uint64_t> {};

TEST_P(HistoryTest, PromisesHold) {
  const uint64_t first = NumberFromEnvironment("ROUNDHOUSE_SEED", 1);
  const uint64_t end = first + NumberFromEnvironment("ROUNDHOUSE_COUNT", 1000);
  History::Counts all;
  for (uint64_t seed = first + GetParam(); seed < end; seed += kParts) {
    History history(seed, NewRoot());
    const absl::Status status = history.Run();
    if (!status.ok()) {
      for (const std::string& line : history.log()) std::cerr << line << "\n";
    }
    ASSERT_TRUE(status.ok()) << "ROUNDHOUSE_SEED=" << seed << ": " << status;
    all.Add(history.counts());
  }
  std::cout << "seeds " << first + GetParam() << " to " << end - 1 << " by "
            << kParts << ": " << all.submits << " submits, " << all.jobs
            << " jobs, " << all.succeeded << " succeeded, " << all.cancelled
            << " cancelled, " << all.slots << " slots, " << all.deaths
            << " deaths of workers, " << all.crashes << " of the daemon, "
            << all.full_disks << " full disks, " << all.held
            << " jobs that waited for room, " << all.samples << " samples, "
            << all.answered << " answered\n";
}

INSTANTIATE_TEST_SUITE_P(Parts, HistoryTest,
                         testing::Range<uint64_t>(0, kParts));

TEST(SeedTest, ASeedIsOneHistory) {
  uint64_t digests[2] = {};
  for (uint64_t& digest : digests) {
    History history(77, NewRoot());
    ASSERT_TRUE(history.Run().ok());
    digest = history.digest();
  }
  EXPECT_EQ(digests[0], digests[1]);
}

}  // namespace
}  // namespace roundhouse::sim
