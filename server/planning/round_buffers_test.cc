#include "server/planning/round_buffers.h"

#include <map>
#include <set>

#include "base/wire/words.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

// Layers 0..3; forward [0,1], fused [2,3], backward [1,1] [0,0]: activations
// begin at 0, 2 and 1, gradients at 2, 1 and 0.
RoundBuffersOptions TestOptions() {
  RoundBuffersOptions options;
  options.plan = {{{0, 1}}, {{2, 3}, {1, 1}, {0, 0}}, true};
  options.layers = 4;
  options.micro_batches = 3;
  options.rows = 2;
  options.row_tokens = 7;
  options.hidden_size = 5;
  options.dtype = DType::kBF16;
  options.boundary_tensors = 6;
  options.contributions.slots_ahead = 3;
  return options;
}

constexpr uint64_t kMore = 1 << 20;

uint64_t HeaderBytes() {
  return (*HostArena::Create(1 << 20, 3))->used_bytes();
}
uint64_t PagesOf(uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

class Ranges {
 public:
  void Add(uint64_t offset, uint64_t bytes) {
    EXPECT_EQ(offset % 64, 0u);
    const auto after = ranges_.lower_bound(offset);
    if (after != ranges_.end()) {
      EXPECT_LE(offset + bytes, after->first);
    }
    if (after != ranges_.begin()) {
      const auto before = std::prev(after);
      EXPECT_LE(before->first + before->second, offset);
    }
    EXPECT_TRUE(ranges_.emplace(offset, bytes).second) << offset;
  }
  uint64_t first() const { return ranges_.begin()->first; }
  uint64_t end() const {
    return ranges_.rbegin()->first + ranges_.rbegin()->second;
  }

 private:
  std::map<uint64_t, uint64_t> ranges_;
};

TEST(RoundBuffersTest, NoTwoBuffersShareAByte) {
  for (const bool packed : {false, true}) {
    RoundBuffersOptions options = TestOptions();
    options.packed = packed;
    options.expert_layers = packed ? 3 : 0;
    options.experts_per_token = packed ? 5 : 0;
    options.expert_count = packed ? 7 : 0;
    auto arena = *HostArena::Create(1 << 20, 3);
    auto buffers = *RoundBuffers::Create(*arena, options);
    const uint64_t ids = 2 * 7 * 4;
    Ranges ranges;
    for (int set = 0; set < kBufferSets; ++set) {
      ranges.Add(buffers->GatherWord(set), sizeof(wire::Word));
      for (int i = 0; i < options.micro_batches; ++i) {
        ranges.Add(buffers->Tokens(set, i), ids);
        ranges.Add(buffers->Labels(set, i), ids);
        if (packed) {
          ranges.Add(buffers->Positions(set, i), ids);
          ranges.Add(buffers->Picks(set, i), 3 * (2 * 7) * 5 * 2);
          ranges.Add(buffers->PickWord(set, i), 3 * sizeof(wire::Word));
          ranges.Add(buffers->Loads(set, i), 3 * 7 * 4);
        }
        for (int boundary = 0; boundary < 4; ++boundary) {
          for (const BoundaryValue value :
               {BoundaryValue::kActivation, BoundaryValue::kGradient,
                BoundaryValue::kAgain}) {
            ranges.Add(buffers->Word(set, value, boundary, i),
                       sizeof(wire::Word));
          }
        }
      }
    }
    EXPECT_EQ(buffers->block_count(), 6 * 3);
    for (int block = 0; block < buffers->block_count(); ++block) {
      ranges.Add(buffers->Block(block), 2 * 7 * 5 * 2);
    }
    EXPECT_EQ(buffers->host_bytes(), RoundBuffersBytes(options));
    EXPECT_LE(ranges.end() - ranges.first(), buffers->host_bytes());
    EXPECT_EQ(arena->used_bytes() % 4096, 0u);
    if (packed) continue;
    EXPECT_DEATH(buffers->Positions(0, 0), "packed");
    EXPECT_DEATH(buffers->Picks(0, 0), "expert_layers");
    EXPECT_DEATH(buffers->Loads(0, 0), "expert_layers");
  }
}

TEST(RoundBuffersTest, WordsStartAtZeroAlsoInUsedMemory) {
  auto arena = *HostArena::Create(1 << 20, 3);
  const auto word = [](const RoundBuffers& buffers) {
    return buffers.Word(1, BoundaryValue::kGradient, 2, 2);
  };
  uint64_t offset = 0;
  {
    auto buffers = *RoundBuffers::Create(*arena, TestOptions());
    offset = word(*buffers);
    wire::Raise(arena->arena().WordAt(offset), 99, arena->arena().doorbells());
  }
  auto buffers = *RoundBuffers::Create(*arena, TestOptions());
  ASSERT_EQ(word(*buffers), offset);
  EXPECT_EQ(arena->arena().WordAt(offset).value.load(), 0u);
}

TEST(RoundBuffersTest, AMicroBatchBeyondTheRoundIsABug) {
  auto arena = *HostArena::Create(1 << 20, 3);
  auto buffers = *RoundBuffers::Create(*arena, TestOptions());
  EXPECT_DEATH(buffers->Tokens(0, 3), "micro-batch 3");
  EXPECT_DEATH(buffers->Tokens(2, 0), "set 2");
}

TEST(RoundBuffersTest, AnotherPlanGoesOnWithTheSameMemory) {
  auto arena = *HostArena::Create(1 << 20, 3);
  RoundBuffersOptions options = TestOptions();
  options.contributions.units = {{1, 0, false, 1024}, {2, 1, false, 1024}};
  auto first = *RoundBuffers::Create(*arena, options);
  EXPECT_EQ(first->contributions().host_bytes(), 12288u);
  EXPECT_DEATH(first->contributions().Buffer(2, 3), "block 3");
  const uint64_t used = arena->used_bytes();
  Plan plan = {{}, {{0, 3}}, true};
  auto second = *RoundBuffers::WithPlan(*arena, plan, *first, kMore);
  EXPECT_EQ(&second->contributions(), &first->contributions());
  EXPECT_EQ(second->Block(0), first->Block(0));
  EXPECT_EQ(second->block_count(), first->block_count());
  EXPECT_EQ(arena->used_bytes(), used);
  first.reset();
  EXPECT_EQ(second->contributions().Buffer(2, 1).bytes, 4096u);
  // Two sums of each layer.
  plan.split = {{1, 1}};
  auto third = *RoundBuffers::WithPlan(*arena, plan, *second, kMore);
  EXPECT_NE(&third->contributions(), &second->contributions());
  EXPECT_EQ(third->contributions().host_bytes(), 24576u);
  EXPECT_EQ(third->Block(0), second->Block(0));
}

// A job that fills host memory can leave its first plan.
TEST(RoundBuffersTest, WithoutRoomTheOldBuffersServeWhereTheySuffice) {
  RoundBuffersOptions options = TestOptions();
  options.contributions.units = {{1, 0, false, 1024}, {2, 1, false, 1024}};
  options.plan = {{}, {{0, 3}}, true};
  options.plan.split = {{1, 1}};
  options.boundary_tensors = 4;
  auto arena = *HostArena::Create(
      HeaderBytes() + PagesOf(RoundBuffersBytes(options)) + PagesOf(24576), 3);
  auto first = *RoundBuffers::Create(*arena, options);
  ASSERT_EQ(arena->free_bytes(), 0u);
  auto second =
      *RoundBuffers::WithPlan(*arena, TestOptions().plan, *first, kMore);
  EXPECT_EQ(&second->contributions(), &first->contributions());
  EXPECT_EQ(second->block_count(), 12);
  Plan wide = options.plan;
  wide.split = {{1, 1, 1, 1}};
  EXPECT_EQ(RoundBuffers::WithPlan(*arena, wide, *first, kMore).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(RoundBuffers::WithPlan(*arena, BlockByBlock(3), *first, kMore)
                .status()
                .code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(RoundBuffersTest, APlanThatWantsMoreBlocksHasThemBesideTheOthers) {
  auto arena = *HostArena::Create(1 << 20, 3);
  RoundBuffersOptions options = TestOptions();
  options.plan = {{}, {{0, 3}}, true};
  options.boundary_tensors = 4;
  auto first = *RoundBuffers::Create(*arena, options);
  EXPECT_EQ(first->block_count(), 12);
  auto second = *RoundBuffers::WithPlan(*arena, BlockByBlock(3), *first, kMore);
  const int64_t wanted = BoundaryTensors(BlockByBlock(3), RowGradient::kRead,
                                         options.contributions.slots_ahead);
  EXPECT_EQ(second->block_count(), 3 * wanted);
  EXPECT_EQ(second->host_bytes() - first->host_bytes(),
            (wanted - 4) * BoundaryTensorBytes(options));
  Ranges ranges;
  for (int block = 0; block < second->block_count(); ++block) {
    if (block < 12) {
      EXPECT_EQ(second->Block(block), first->Block(block));
    }
    ranges.Add(second->Block(block), 2 * 7 * 5 * 2);
  }
  EXPECT_DEATH(second->Block(static_cast<int>(second->block_count())), "block");
  // Back again it gives them back.
  auto third = *RoundBuffers::WithPlan(*arena, options.plan, *second, kMore);
  EXPECT_EQ(third->block_count(), 12);
  EXPECT_EQ(third->host_bytes(), first->host_bytes());
}

// What a plan needs goes before what it wants, and both are within the bytes
// that it may take.
TEST(RoundBuffersTest, APlanTakesWhatItNeedsFirst) {
  auto arena = *HostArena::Create(4 << 20, 3);
  RoundBuffersOptions options = TestOptions();
  options.contributions.units = {{1, 0, false, 1024}, {2, 1, false, 1024}};
  options.plan = {{}, {{0, 3}}, true};
  options.boundary_tensors = 4;
  auto first = *RoundBuffers::Create(*arena, options);
  Plan plan = BlockByBlock(3);
  plan.split.assign(plan.slot_count(), {1, 1, 1, 1});
  const uint64_t tensor = BoundaryTensorBytes(options);
  const uint64_t sums = ContributionBytes(plan, options.contributions);
  const int64_t least = LeastBoundaryTensors(plan, RowGradient::kRead);
  ASSERT_EQ(least, 5);
  ASSERT_GT(BoundaryTensors(plan, RowGradient::kRead, 3), least);
  EXPECT_EQ(RoundBuffers::WithPlan(*arena, plan, *first, tensor + sums - 1)
                .status()
                .code(),
            absl::StatusCode::kResourceExhausted);
  const uint64_t used = arena->used_bytes();
  auto second = *RoundBuffers::WithPlan(*arena, plan, *first, tensor + sums);
  EXPECT_EQ(second->block_count(), 3 * least);
  EXPECT_EQ(second->contributions().host_bytes(), sums);
  EXPECT_LE(arena->used_bytes() - used, PagesOf(tensor) + PagesOf(sums));
  auto third = *RoundBuffers::WithPlan(*arena, plan, *first, 2 * tensor + sums);
  EXPECT_EQ(third->block_count(), 3 * (least + 1));
}

TEST(RoundBuffersTest, TooLittleMemoryTakesNothing) {
  auto arena = *HostArena::Create(1 << 16, 3);
  const uint64_t before = arena->used_bytes();
  RoundBuffersOptions options = TestOptions();
  options.row_tokens = 1 << 20;
  EXPECT_EQ(RoundBuffers::Create(*arena, options).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(arena->used_bytes(), before);
}

}  // namespace
}  // namespace roundhouse
