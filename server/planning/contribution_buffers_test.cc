#include "server/planning/contribution_buffers.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/testing/test_model.h"

namespace roundhouse {
namespace {

// Layers 0..2 and the head (3): forward [0,1], fused [2,3], backward [1,1]
// [0,0].
Plan TestPlan() { return {{{0, 1}}, {{2, 3}, {1, 1}, {0, 0}}, true}; }

ContributionOptions TestOptions(bool tied, bool adapters = false,
                                DType dtype = DType::kF32) {
  ContributionOptions options;
  options.dtype = dtype;
  options.units = ContributedUnits(TestModel(tied),
                                   adapters ? TestAdapter() : AdapterConfig());
  options.rounds = 2;
  options.slots_ahead = 30;  // more than a round has
  return options;
}

std::vector<int> Units(const ContributionOptions& options) {
  std::vector<int> units;
  for (const ContributedUnit& unit : options.units) units.push_back(unit.unit);
  return units;
}

TEST(ContributionBuffersTest, UnitsAreThoseThatALayerTrains) {
  EXPECT_EQ(Units(TestOptions(false)), (std::vector<int>{1, 2, 3, 4}));
  const ContributionOptions tied = TestOptions(true);
  std::vector<int> units = Units(tied);
  std::sort(units.begin(), units.end());
  EXPECT_EQ(units, (std::vector<int>{0, 1, 2, 3, 4}));
  for (const ContributedUnit& unit : tied.units) {
    EXPECT_EQ(unit.layer, unit.unit == 0 ? 3 : unit.unit - 1);
  }
  EXPECT_EQ(Units(TestOptions(true, true)), (std::vector<int>{5, 6, 7}));
}

TEST(ContributionBuffersTest, NoTwoBlocksShareAByteAndNoneIsLeftOver) {
  for (const auto& [adapters, dtype] :
       {std::pair{false, DType::kF32}, std::pair{false, DType::kBF16},
        std::pair{true, DType::kF32}}) {
    const ContributionOptions options = TestOptions(true, adapters, dtype);
    Plan plan = TestPlan();
    plan.split = {{8}, {4, 4}, {8}, {3, 5}};
    auto arena = *HostArena::Create(64 << 20, 3);
    const auto buffers = *ContributionBuffers::Create(*arena, plan, options);
    EXPECT_EQ(buffers->blocks(), (ContributionBlocks{7, 2}));
    EXPECT_EQ(buffers->dtype(), dtype);
    std::set<std::pair<uint64_t, uint64_t>> ranges;
    uint64_t bytes = 0;
    for (const ContributedUnit& unit : options.units) {
      // Decoder layers share theirs, and are of one size here.
      if (unit.layer == 1 || unit.layer == 2) continue;
      const int count = unit.head ? 2 : 7;
      for (int block = 0; block < count; ++block) {
        const wire::BufferRef one = buffers->Buffer(unit.unit, block);
        EXPECT_EQ(one.bytes, unit.elements * DTypeBytes(dtype));
        EXPECT_EQ(one.offset % 64, 0u);
        ranges.insert({one.offset, one.offset + one.bytes});
        bytes += one.bytes;
      }
      EXPECT_DEATH(buffers->Buffer(unit.unit, count), "block");
    }
    uint64_t end = 0;
    for (const auto& [begin, after] : ranges) {
      EXPECT_GE(begin, end);
      end = after;
    }
    EXPECT_EQ(bytes, ContributionBytes(plan, options));
    EXPECT_EQ(bytes, buffers->host_bytes());
    EXPECT_DEATH(buffers->Buffer(99, 0), "unit 99");
  }
}

TEST(ContributionBuffersTest, DecoderLayersShareTheirBlocks) {
  auto arena = *HostArena::Create(64 << 20, 3);
  const auto buffers =
      *ContributionBuffers::Create(*arena, TestPlan(), TestOptions(false));
  EXPECT_EQ(buffers->Buffer(1, 2).offset, buffers->Buffer(3, 2).offset);
}

// What is with the devices, not how many layers there are, says how many.
TEST(ContributionBuffersTest, FewerSlotsAheadNeedFewerBlocks) {
  ContributionOptions options = TestOptions(false);
  options.slots_ahead = 3;
  const Plan plan = BlockByBlock(60);
  EXPECT_EQ(BlocksOf(plan, options), (ContributionBlocks{4, 1}));
  options.slots_ahead = 24;
  EXPECT_EQ(BlocksOf(plan, options), (ContributionBlocks{25, 1}));
}

TEST(ContributionBuffersTest, RoundedSumsTakeHalfTheBytes) {
  const Plan plan = TestPlan();
  EXPECT_EQ(2 * ContributionBytes(plan, TestOptions(true, false, DType::kF16)),
            ContributionBytes(plan, TestOptions(true)));
}

TEST(ContributionBuffersTest, TooLittleMemoryTakesNothing) {
  auto arena = *HostArena::Create(1 << 16, 3);
  const uint64_t before = arena->used_bytes();
  EXPECT_EQ(ContributionBuffers::Create(*arena, TestPlan(), TestOptions(false))
                .status()
                .code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(arena->used_bytes(), before);
}

}  // namespace
}  // namespace roundhouse
