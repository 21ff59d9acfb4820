#include "scheduler/estimate/longest_sequence.h"

#include "gtest/gtest.h"
#include "scheduler/estimate/test_shapes.h"

namespace roundhouse {
namespace {

const DevicePreset& Rtx4090() { return *FindPreset("rtx4090"); }

TrainingSetup Alone(TrainingSetup setup, int64_t tokens) {
  setup.micro_batch_sequences = 1;
  setup.sequence_tokens = tokens;
  return setup;
}

TEST(LongestSequenceTest, TheNextTokenDoesNotFitTheDevice) {
  const TrainingSetup setup = TestSetup("qwen3-32b");
  const LongestSequence longest =
      FindLongestSequence(setup, Rtx4090(), 1, 8, 0);
  EXPECT_EQ(longest.limit, SequenceLimit::kDeviceMemory);
  EXPECT_LE(DeviceNeedBytes(Alone(setup, longest.tokens), Rtx4090()),
            Rtx4090().memory_bytes);
  EXPECT_GT(DeviceNeedBytes(Alone(setup, longest.tokens + 1), Rtx4090()),
            Rtx4090().memory_bytes);
}

// 28 thousand tokens of 32B and 31 of 235B are published for this card; our
// plans have to reach them, and 64 thousand for 235B on a larger one.
TEST(LongestSequenceTest, PublishedLengthsFit) {
  EXPECT_GE(
      FindLongestSequence(TestSetup("qwen3-32b"), Rtx4090(), 1, 8, 0).tokens,
      28'000);
  const TrainingSetup lora = TestLora("qwen3-235b", 8);
  EXPECT_GE(FindLongestSequence(lora, Rtx4090(), 1, 8, 0).tokens, 31'000);
  EXPECT_GE(FindLongestSequence(lora, *FindPreset("a800"), 1, 8, 0).tokens,
            64'000);
}

// Eight rows a step on eight cards, with the host memory of the server that was
// published.
TEST(LongestSequenceTest, EightRowsFitTheHost) {
  constexpr int64_t kHost = int64_t{800} << 30;
  EXPECT_GE(FindLongestSequence(TestSetup("qwen3-32b"), Rtx4090(), 8, 8, kHost)
                .tokens,
            33'000);
  EXPECT_GE(
      FindLongestSequence(TestLora("qwen3-235b", 8), Rtx4090(), 8, 8, kHost)
          .tokens,
      48'000);
}

TEST(LongestSequenceTest, HostMemoryMayEndItFirst) {
  const TrainingSetup setup = TestSetup("qwen3-32b");
  const int64_t longest = FindLongestSequence(setup, Rtx4090(), 1, 8, 0).tokens;
  const int64_t enough = HostNeedBytes(Alone(setup, longest), 1, 8);
  EXPECT_EQ(FindLongestSequence(setup, Rtx4090(), 1, 8, enough).tokens,
            longest);
  const LongestSequence shorter =
      FindLongestSequence(setup, Rtx4090(), 1, 8, enough - 1);
  EXPECT_EQ(shorter.tokens, longest - 1);
  EXPECT_EQ(shorter.limit, SequenceLimit::kHostMemory);
}

TEST(LongestSequenceTest, NothingMayFit) {
  const TrainingSetup setup = TestSetup("qwen3-32b");
  // Not even the state.
  EXPECT_EQ(FindLongestSequence(setup, Rtx4090(), 1, 8, 1 << 30),
            (LongestSequence{0, SequenceLimit::kHostMemory}));
  TrainingSetup wide = setup;
  wide.shape.layer_parameters = 100'000'000'000;
  EXPECT_EQ(FindLongestSequence(wide, Rtx4090(), 1, 8, 0),
            (LongestSequence{0, SequenceLimit::kDeviceMemory}));
}

// The boundaries of a batch are those of a round, however long the step.
TEST(LongestSequenceTest, HostBytesAreOfARound) {
  const TrainingSetup setup = Alone(TestSetup("qwen3-32b"), 2048);
  EXPECT_GT(HostNeedBytes(setup, 1, 32), HostNeedBytes(setup, 1, 31));
  EXPECT_EQ(HostNeedBytes(setup, 1, 33), HostNeedBytes(setup, 1, 32));
}

}  // namespace
}  // namespace roundhouse
