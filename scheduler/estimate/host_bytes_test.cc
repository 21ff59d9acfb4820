#include "scheduler/estimate/host_bytes.h"

#include "gtest/gtest.h"
#include "scheduler/estimate/test_shapes.h"

namespace roundhouse {
namespace {

// docs/design/memory.md: 18 bytes a parameter that trains, 2 a frozen one.
TEST(HostBytesTest, FullFineTuningOf32B) {
  const TrainingSetup setup = TestSetup("qwen3-32b");
  const HostMemory bytes = HostBytesOf(setup, 10, 16, {});
  EXPECT_EQ(setup.shape.parameter_count(), 32'762'123'264);
  EXPECT_EQ(bytes.state, 18 * int64_t{32'762'123'264});
  EXPECT_EQ(bytes.base, 0);
  // 16 micro-batches of 10 tensors.
  EXPECT_EQ(bytes.boundaries, int64_t{16} * 10 * 2 * 8192 * 5120);
  EXPECT_EQ(bytes.total(), bytes.state + bytes.boundaries);
}

TEST(HostBytesTest, WithoutClippingOnlyTheEmbeddingHasASum) {
  TrainingSetup setup = TestSetup("qwen3-32b");
  setup.clips = false;
  const ModelShape& shape = setup.shape;
  EXPECT_EQ(HostBytesOf(setup, 10, 16, {}).state,
            14 * shape.parameter_count() + 4 * shape.embedding_parameters());
  // It is needed from round to round.
  EXPECT_EQ(HostBytesOf(setup, 10, 16, {}, 2).state,
            18 * shape.parameter_count());
  TrainingSetup lora = TestLora("qwen3-32b", 8);
  lora.clips = false;
  EXPECT_EQ(HostBytesOf(lora, 10, 16, {}).state, 16 * TrainedParameters(lora));
}

TEST(HostBytesTest, AdaptersOf235B) {
  const TrainingSetup setup = TestLora("qwen3-235b", 8);
  const HostMemory bytes = HostBytesOf(setup, 0, 16, {});
  EXPECT_EQ(bytes.base, 2 * setup.shape.parameter_count());
  EXPECT_NEAR(1e-9 * static_cast<double>(bytes.base), 470.2, 0.1);
  EXPECT_EQ(bytes.state, 20 * TrainedParameters(setup));
}

TEST(HostBytesTest, ATiedMatrixIsHeldOnce) {
  const TrainingSetup setup = TestSetup("qwen3-1.7b");
  EXPECT_NEAR(1e-9 * static_cast<double>(HostBytesOf(setup, 0, 1, {}).state),
              18 * 1.7206, 0.01);
}

// The inputs of all stages, the outputs of two slots, and one gradient of the
// embedding where that trains.
TEST(HostBytesTest, TheLeastBetweenStages) {
  TrainingSetup full = TestSetup("qwen3-32b");
  TrainingSetup lora = TestLora("qwen3-32b", 8);
  full.saved_every = lora.saved_every = 1;
  EXPECT_EQ(BlockByBlockTensors(full), 65 + 2 + 1);
  EXPECT_EQ(BlockByBlockTensors(lora), 65 + 2);
  // One of eight inputs, the seven others of a group at a time, and what is
  // written and read meanwhile.
  full.saved_every = 8;
  EXPECT_EQ(BlockByBlockTensors(full), 8 + 7 + 4);
  full.saved_every = 0;
  EXPECT_EQ(BlockByBlockTensors(full), 8 + 7 + 4);
}

TEST(HostBytesTest, ContributionsAreOfLayersAndHead) {
  const TrainingSetup setup = TestSetup("qwen3-32b");
  const int64_t none = HostBytesOf(setup, 10, 16, {}).total();
  EXPECT_EQ(HostBytesOf(setup, 10, 16, {5, 2}).total() - none,
            4 * (5 * setup.shape.layer_parameters +
                 2 * setup.shape.head_parameters()));
  const TrainingSetup tied = TestSetup("qwen3-1.7b");
  EXPECT_EQ(HostBytesOf(tied, 10, 16, {0, 1}).contributions,
            4 * (tied.shape.embedding_parameters() + tied.shape.hidden_size));
  TrainingSetup fast = setup;
  fast.contributions = Contributions::kModelDtype;
  EXPECT_EQ(2 * HostBytesOf(fast, 10, 16, {5, 2}).contributions,
            HostBytesOf(setup, 10, 16, {5, 2}).contributions);
  TrainingSetup lora = TestLora("qwen3-32b", 8);
  lora.contributions = Contributions::kModelDtype;  // not of adapters
  EXPECT_EQ(HostBytesOf(lora, 10, 16, {5, 2}).contributions,
            4 * 5 * AdapterParameters(lora));
}

// Three slots a device and one more, however many layers there are.
TEST(HostBytesTest, TheLeastIsForWhatIsSent) {
  const TrainingSetup setup = TestSetup("qwen3-32b");
  EXPECT_EQ(LeastBlocks(setup, 1), (ContributionBlocks{4, 1}));
  EXPECT_EQ(LeastBlocks(setup, 8), (ContributionBlocks{25, 1}));
}

}  // namespace
}  // namespace roundhouse
