#include "server/devices/yield_policy.h"

#include <optional>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

using wire::GpuProcess;
using wire::GpuProcesses;

constexpr uint64_t kGpuBytes = 24'000'000'000;
constexpr uint64_t kLittle = kGpuBytes / 10;
constexpr uint64_t kMuch = kLittle + 1;

GpuProcess Computes(uint32_t pid, uint32_t percent = 50,
                    uint64_t bytes = kLittle) {
  return {.pid = pid,
          .compute = true,
          .memory_bytes = bytes,
          .busy_percent = percent};
}
GpuProcess Draws(uint32_t pid, uint64_t bytes) {
  return {.pid = pid, .memory_bytes = bytes, .busy_percent = 50};
}

class YieldPolicyTest : public testing::Test {
 protected:
  // A look a second after the last one; answers who has the device, 0: nobody.
  uint32_t See(std::vector<GpuProcess> processes) {
    return Look({.uuid = "GPU-a",
                 .memory_bytes = kGpuBytes,
                 .processes = std::move(processes)});
  }
  uint32_t Look(const GpuProcesses& gpu) {
    now_ns_ += 1'000'000'000;
    policy_.See(gpu, now_ns_);
    return policy_.taker().has_value() ? policy_.taker()->pid : 0;
  }
  // How many looks at `processes` it takes until nobody has it.
  int LooksUntilBack(const std::vector<GpuProcess>& processes) {
    for (int looks = 1; looks < 1000; ++looks) {
      if (See(processes) == 0) return looks;
    }
    return 0;
  }

  YieldPolicy policy_{kYieldBackAfter};
  int64_t now_ns_ = 0;
};

// At the first look that shows it, which is within two seconds of its
// beginning.
TEST_F(YieldPolicyTest, WhoComputesTakesItAndIsGoneForAMinute) {
  EXPECT_EQ(See({}), 0u);
  EXPECT_EQ(See({Computes(7)}), 7u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(See({Computes(7)}), 7u);
  // The first look without it begins the minute.
  EXPECT_EQ(LooksUntilBack({}), 61);
  EXPECT_EQ(See({}), 0u);
  EXPECT_EQ(See({Computes(7)}), 7u);
}

TEST_F(YieldPolicyTest, AContextThatIdlesTakesNothingButKeepsIt) {
  EXPECT_EQ(See({Computes(7, 0)}), 0u);
  EXPECT_EQ(See({Computes(7, 1)}), 7u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(See({Computes(7, 0)}), 7u);
  // Another that idles does not.
  EXPECT_EQ(LooksUntilBack({Computes(8, 0)}), 61);
}

TEST_F(YieldPolicyTest, WhereUseIsNotKnownAContextCounts) {
  GpuProcess process = Computes(7);
  process.busy_percent.reset();
  EXPECT_EQ(See({process}), 7u);
}

TEST_F(YieldPolicyTest, WhoOnlyDrawsCountsByMemory) {
  EXPECT_EQ(See({Draws(7, kLittle), Draws(8, kLittle)}), 0u);
  EXPECT_EQ(See({Draws(7, kMuch)}), 7u);
  EXPECT_EQ(See({Draws(7, kMuch)}), 7u);
  // It is still there, and has little.
  EXPECT_EQ(LooksUntilBack({Draws(7, kLittle)}), 61);
}

TEST_F(YieldPolicyTest, MemoryTakesItWithoutComputing) {
  EXPECT_EQ(See({Computes(7, 0, kMuch)}), 7u);
  // It has a context: it keeps it until it has ended.
  EXPECT_EQ(See({Computes(7, 0)}), 7u);
  EXPECT_EQ(LooksUntilBack({}), 61);
}

TEST_F(YieldPolicyTest, MemoryThatIsNotKnownTakesNothing) {
  GpuProcesses gpu{.uuid = "GPU-a", .processes = {Draws(7, kMuch)}};
  EXPECT_EQ(Look(gpu), 0u);
  gpu.memory_bytes = kGpuBytes;
  gpu.processes[0].memory_bytes.reset();
  EXPECT_EQ(Look(gpu), 0u);
}

TEST_F(YieldPolicyTest, AnotherThatComesMeanwhileBeginsTheMinuteAnew) {
  EXPECT_EQ(See({Computes(7)}), 7u);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(See({}), 7u);
  EXPECT_EQ(See({Computes(9)}), 9u);
  EXPECT_EQ(See({Computes(7), Computes(9)}), 7u);
  EXPECT_EQ(LooksUntilBack({}), 61);
}

TEST_F(YieldPolicyTest, ALookThatFailedChangesNothing) {
  const GpuProcesses failed{.uuid = "GPU-a", .fault = "Unknown Error"};
  EXPECT_EQ(Look(failed), 0u);
  EXPECT_EQ(See({Computes(7)}), 7u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(Look(failed), 7u);
  EXPECT_EQ(See({}), 7u);
}

TEST_F(YieldPolicyTest, WhoIsForgivenCountsWhenHeComesAgain) {
  EXPECT_EQ(See({Computes(7), Computes(8, 0)}), 7u);
  policy_.Forgive();
  EXPECT_EQ(policy_.taker(), std::nullopt);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(See({Computes(7, 99, kMuch), Computes(8)}), 0u);
  }
  EXPECT_EQ(See({Computes(7), Computes(9)}), 9u);
  EXPECT_EQ(See({Computes(7), Computes(9)}), 9u);
  EXPECT_EQ(LooksUntilBack({Computes(7)}), 61);
  EXPECT_EQ(See({}), 0u);
  EXPECT_EQ(See({Computes(7)}), 7u);
}

}  // namespace
}  // namespace roundhouse
