#include "server/jobs/contribution_buffers.h"

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

ContributionOptions TestOptions(bool tied, bool adapters = false) {
  ContributionOptions options;
  options.units = ContributedUnits(TestModel(tied),
                                   adapters ? TestAdapter() : AdapterConfig());
  options.sets = 2;
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

TEST(ContributionBuffersTest, NoTwoSumsShareAByteAndNoneIsLeftOver) {
  for (const bool adapters : {false, true}) {
    const ContributionOptions options = TestOptions(true, adapters);
    Plan plan = TestPlan();
    plan.split = {{8}, {4, 4}, {8}, {3, 5}};
    const std::vector<int> most = {4, 1, 2, 2};
    auto arena = *HostArena::Create(64 << 20, 3);
    const auto buffers = *ContributionBuffers::Create(*arena, plan, options);
    std::set<std::pair<uint64_t, uint64_t>> ranges;
    uint64_t bytes = 0;
    for (const ContributedUnit& unit : options.units) {
      for (int set = 0; set < 2; ++set) {
        for (int index = 0; index < most[unit.layer]; ++index) {
          const wire::BufferRef one = buffers->Buffer(unit.unit, set, index);
          EXPECT_EQ(one.bytes, unit.bytes);
          EXPECT_EQ(one.offset % 64, 0u);
          ranges.insert({one.offset, one.offset + one.bytes});
          bytes += one.bytes;
        }
      }
      EXPECT_DEATH(buffers->Buffer(unit.unit, 0, most[unit.layer]), "sum");
    }
    uint64_t end = 0;
    for (const auto& [begin, after] : ranges) {
      EXPECT_GE(begin, end);
      end = after;
    }
    EXPECT_EQ(bytes, ContributionBytes(plan, options));
    EXPECT_EQ(bytes, buffers->host_bytes());
    EXPECT_EQ(end - ranges.begin()->first, bytes);
    EXPECT_DEATH(buffers->Buffer(99, 0, 0), "unit 99");
  }
}

TEST(ContributionBuffersTest, WidthOneNeedsOneSumAUnitWhateverTheStages) {
  const ContributionOptions options = TestOptions(false);
  uint64_t bytes = 0;
  for (const ContributedUnit& unit : options.units) bytes += 2 * unit.bytes;
  EXPECT_EQ(ContributionBytes(TestPlan(), options), bytes);
  const Plan other = {{}, {{0, 3}}, true};
  EXPECT_EQ(ContributionBytes(other, options), bytes);
  auto arena = *HostArena::Create(64 << 20, 3);
  const auto buffers =
      *ContributionBuffers::Create(*arena, TestPlan(), options);
  EXPECT_TRUE(buffers->Serve(other));
  Plan wide = TestPlan();
  wide.split = {{2}, {2}, {2}, {1, 1}};
  EXPECT_FALSE(buffers->Serve(wide));
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
