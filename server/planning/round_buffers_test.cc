#include "server/planning/round_buffers.h"

#include <map>
#include <set>
#include <stdexcept>

#include "base/wire/words.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

// Layers 0..3; forward [0,1], fused [2,3], backward [1,1] [0,0]: activations
// begin at 0, 2 and 1, gradients at 2, 1 and 0.
RoundBuffersOptions TestOptions() {
  RoundBuffersOptions options;
  options.plan = {{{0, 1}}, {{2, 3}, {1, 1}, {0, 0}}, true};
  options.micro_batches = 3;
  options.rows = 2;
  options.row_tokens = 7;
  options.hidden_size = 5;
  options.dtype = DType::kBF16;
  return options;
}

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
  const RoundBuffersOptions options = TestOptions();
  auto arena = *HostArena::Create(1 << 20, 3);
  auto buffers = *RoundBuffers::Create(*arena, options);
  const uint64_t ids = 2 * 7 * 4;
  const uint64_t activation = 2 * 7 * 5 * 2;
  Ranges ranges;
  for (int set = 0; set < kBufferSets; ++set) {
    ranges.Add(buffers->GatherWord(set), sizeof(wire::Word));
    for (int i = 0; i < options.micro_batches; ++i) {
      ranges.Add(buffers->Tokens(set, i), ids);
      ranges.Add(buffers->Labels(set, i), ids);
      for (int boundary : {0, 1, 2}) {
        const auto forward = buffers->Activation(set, boundary, i);
        ranges.Add(forward.offset, activation);
        ranges.Add(forward.word_offset, sizeof(wire::Word));
        const auto backward = buffers->Gradient(set, boundary, i);
        ranges.Add(backward.offset, activation);
        ranges.Add(backward.word_offset, sizeof(wire::Word));
      }
    }
  }
  EXPECT_EQ(buffers->host_bytes(), RoundBuffersBytes(options));
  EXPECT_LE(ranges.end() - ranges.first(), buffers->host_bytes());
  EXPECT_EQ(arena->used_bytes() % 4096, 0u);
}

TEST(RoundBuffersTest, PackedRowsHavePositionsOfTheirOwn) {
  RoundBuffersOptions options = TestOptions();
  options.packed = true;
  auto arena = *HostArena::Create(1 << 20, 3);
  auto buffers = *RoundBuffers::Create(*arena, options);
  Ranges ranges;
  for (int set = 0; set < kBufferSets; ++set) {
    for (int i = 0; i < options.micro_batches; ++i) {
      ranges.Add(buffers->Tokens(set, i), 56);
      ranges.Add(buffers->Labels(set, i), 56);
      ranges.Add(buffers->Positions(set, i), 56);
      ranges.Add(buffers->Activation(set, 0, i).offset, 140);
      ranges.Add(buffers->Gradient(set, 0, i).offset, 140);
    }
  }
  EXPECT_GT(RoundBuffersBytes(options), RoundBuffersBytes(TestOptions()));
  EXPECT_LE(ranges.end() - ranges.first(), buffers->host_bytes());
  auto plain = *RoundBuffers::Create(*arena, TestOptions());
  EXPECT_DEATH(plain->Positions(0, 0), "packed");
}

TEST(RoundBuffersTest, AFrozenEmbeddingHasNoGradient) {
  RoundBuffersOptions options = TestOptions();
  options.input_gradient = false;
  auto arena = *HostArena::Create(1 << 20, 3);
  auto buffers = *RoundBuffers::Create(*arena, options);
  EXPECT_NE(buffers->Gradient(0, 1, 0).offset, 0u);
  EXPECT_THROW(buffers->Gradient(0, 0, 0), std::out_of_range);
  EXPECT_LT(RoundBuffersBytes(options), RoundBuffersBytes(TestOptions()));
}

TEST(RoundBuffersTest, BoundariesAreTheStartsOfStages) {
  auto arena = *HostArena::Create(1 << 20, 3);
  auto buffers = *RoundBuffers::Create(*arena, TestOptions());
  for (int boundary = 0; boundary <= 4; ++boundary) {
    EXPECT_EQ(buffers->HasActivation(boundary), boundary <= 2) << boundary;
  }
}

TEST(RoundBuffersTest, WordsStartAtZeroAlsoInUsedMemory) {
  auto arena = *HostArena::Create(1 << 20, 3);
  uint64_t offset = 0;
  {
    auto buffers = *RoundBuffers::Create(*arena, TestOptions());
    offset = buffers->Gradient(1, 2, 2).word_offset;
    wire::Raise(arena->arena().WordAt(offset), 99, arena->arena().doorbells());
  }
  auto buffers = *RoundBuffers::Create(*arena, TestOptions());
  ASSERT_EQ(buffers->Gradient(1, 2, 2).word_offset, offset);
  EXPECT_EQ(arena->arena().WordAt(offset).value.load(), 0u);
}

TEST(RoundBuffersTest, AMicroBatchBeyondTheRoundIsABug) {
  auto arena = *HostArena::Create(1 << 20, 3);
  auto buffers = *RoundBuffers::Create(*arena, TestOptions());
  EXPECT_DEATH(buffers->Tokens(0, 3), "micro-batch 3");
  EXPECT_DEATH(buffers->Tokens(2, 0), "set 2");
}

// Then nothing of their size is made anew.
TEST(RoundBuffersTest, APlanWithAsManyBlocksTakesThemOver) {
  auto arena = *HostArena::Create(1 << 20, 3);
  RoundBuffersOptions options = TestOptions();
  options.contributions.units = {{1, 0, false, 1024}, {2, 1, false, 1024}};
  auto first = *RoundBuffers::Create(*arena, options);
  EXPECT_EQ(first->contributions().host_bytes(), 12288u);
  EXPECT_DEATH(first->contributions().Buffer(2, 3), "block 3");
  options.plan = {{}, {{0, 3}}, true};
  auto second = *RoundBuffers::Create(*arena, options, first.get());
  EXPECT_EQ(&second->contributions(), &first->contributions());
  first.reset();
  EXPECT_EQ(second->contributions().Buffer(2, 1).bytes, 4096u);
  options.plan.split = {{1, 1}};
  auto third = *RoundBuffers::Create(*arena, options, second.get());
  EXPECT_NE(&third->contributions(), &second->contributions());
  EXPECT_EQ(third->contributions().host_bytes(), 24576u);
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
