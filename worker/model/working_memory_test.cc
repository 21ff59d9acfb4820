// What LibTorch's allocator gives out while a micro-batch is computed, against
// base/model/working_memory.h.
#include "base/model/working_memory.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "c10/core/CPUAllocator.h"
#include "gtest/gtest.h"
#include "worker/model/fused/host_fused_kernels.h"
#include "worker/model/on_stream.h"
#include "worker/model/stage_run.h"
#include "worker/model/test_model.h"

namespace roundhouse::worker {
namespace {

// LibTorch's allocator of host memory, with a count.
class CountingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* const block = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    const int64_t used = used_ += Size(block);
    peak_ = std::max<int64_t>(peak_, used);
    return {block, block, &Free, at::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  static int64_t used() { return used_; }
  // Since the last call.
  static int64_t TakePeak() { return peak_.exchange(used_); }

 private:
  static int64_t Size(void* block) {
    return static_cast<int64_t>(malloc_usable_size(block));
  }
  static void Free(void* block) {
    used_ -= Size(block);
    std::free(block);
  }
  static inline std::atomic<int64_t> used_{0};
  static inline std::atomic<int64_t> peak_{0};
};

struct Case {
  std::string name;
  Architecture architecture = Architecture::kQwen3;
  DType dtype = DType::kF32;
  bool adapters = false;
  int64_t rank = 8;  // of the adapters
  double dropout = 0.1;
  bool backward = true;
  bool layer_recompute = false;
  bool with_head = true;
  int64_t token_chunk = 64;
  int64_t rows = 3;
};

// The same of a mixture, the first of whose layers is dense.
Case Experts(Case one) {
  one.architecture = Architecture::kQwen3Moe;
  return one;
}

// Where an MLP stands beside the experts.
Case SharedExpert(Case one) {
  one.architecture = Architecture::kQwen2Moe;
  return one;
}

class WorkingMemoryTest : public testing::TestWithParam<Case> {
 protected:
  WorkingMemoryTest() { SetHostFusedKernels(&kernels_); }
  ~WorkingMemoryTest() override { SetHostFusedKernels(nullptr); }
  static void SetUpTestSuite() {
    static CountingAllocator allocator;
    c10::SetCPUAllocator(&allocator, /*priority=*/255);
  }

 private:
  const HostFusedKernels kernels_;
};

ModelConfig Config(Architecture architecture) {
  ModelConfig config = architecture == Architecture::kQwen3
                           ? TinyConfig(3, false)
                           : TinyFamilyConfig(architecture, 3);
  config.hidden_size = 192;
  config.head_count = 6;
  config.kv_head_count = 2;
  config.head_dim = 32;
  config.intermediate_size = 512;
  config.vocab_size = 1500;
  if (config.mixture.present()) {
    // Both get every token, the most that one can get.
    config.mixture.expert_count = config.mixture.experts_per_token = 2;
    config.mixture.expert_size = 224;
    if (config.mixture.shared_size > 0) config.mixture.shared_size = 448;
  }
  return config;
}

void RunOnce(const Case& one, const TestModel& model, const TestBatch& batch) {
  const ModelConfig& config = model.config;
  const auto input = model.Embed(batch.tokens);
  auto run = *StageRun::Create({.config = config,
                                .adapter = model.adapter,
                                .dtype = model.dtype,
                                .rows = batch.rows,
                                .row_tokens = batch.row_tokens,
                                .keep = !one.backward         ? Keep::kNothing
                                        : one.layer_recompute ? Keep::kLayer
                                                              : Keep::kStage,
                                .head_token_chunk = one.token_chunk,
                                .train = true});
  struct : GradientSink {
    void OnGradient(int64_t, ParamRole, const float*, int64_t) override {}
  } sink;
  ASSERT_TRUE(run->SetInput(input.data()).ok());
  for (int64_t layer = 0; layer < config.layer_count; ++layer) {
    ASSERT_TRUE(run->ForwardLayer(layer, model.Weights(layer)).ok());
  }
  if (one.with_head) {
    ASSERT_TRUE(run->Head(model.Weights(config.layer_count),
                          batch.labels.data(),
                          one.backward ? HeadMode::kLossAndGradient
                                       : HeadMode::kLossOnly,
                          0.1, &sink)
                    .ok());
  } else if (one.backward) {
    ASSERT_TRUE(run->BackwardFrom(input.data()).ok());
  }
  if (!one.backward) return;
  for (int64_t layer = config.layer_count - 1; layer >= 0; --layer) {
    ASSERT_TRUE(run->BackwardLayer(layer, &sink).ok());
  }
}

// fp32 copies of a product's operands and of its result, on CPUs that cannot
// multiply the dtype.
uint64_t WideProducts(const ModelConfig& config, const TestBatch& batch) {
  const auto tokens = batch.rows * batch.row_tokens;
  const int64_t inner = std::max(config.intermediate_size, config.vocab_size);
  const int64_t elements =
      config.hidden_size * inner + tokens * config.hidden_size + tokens * inner;
  return static_cast<uint64_t>(elements) * sizeof(float);
}

TEST_P(WorkingMemoryTest, IsBoundedAndNotByMuchMore) {
  SetComputeThreads(1);
  const Case& one = GetParam();
  const ModelConfig config = Config(one.architecture);
  AdapterConfig adapter;
  if (one.adapters) {
    // Experts have none.
    adapter = {.rank = one.rank,
               .alpha = 16,
               .dropout = one.dropout,
               .targets = config.mixture.present() ? 0xFu : 0x7Fu};
  }
  const TestModel model(config, one.dtype, 1, adapter);
  const TestBatch batch = MakeBatch(config, one.rows, 96, 2);
  RunOnce(one, model, batch);  // what LibTorch keeps of a first call
  const int64_t before = CountingAllocator::used();
  CountingAllocator::TakePeak();
  RunOnce(one, model, batch);
  const auto measured =
      static_cast<uint64_t>(CountingAllocator::TakePeak() - before);
  const int64_t last = config.layer_count - (one.with_head ? 0 : 1);
  const uint64_t bytes = WorkingBytes(config, adapter,
                                      {.batch = {batch.rows, batch.row_tokens},
                                       .dtype = one.dtype,
                                       .backward = one.backward,
                                       .layer_recompute = one.layer_recompute,
                                       .head_token_chunk = one.token_chunk},
                                      0, last);
  RecordProperty("measured", std::to_string(measured));
  RecordProperty("bytes", std::to_string(bytes));
  if (one.dtype == DType::kF32) {
    EXPECT_LE(measured, bytes);
    EXPECT_LE(static_cast<double>(bytes), 1.5 * static_cast<double>(measured));
  } else {
    EXPECT_LE(measured, bytes + WideProducts(config, batch));
  }
}

// The config has Qwen3-1.7B's attention. Its sixteen heads are few for a GPU,
// so each query's gradient is added up twelve times over, whatever the model's
// dtype. Keys' and values' are added up sixteen times. The bound counts the
// query's once more.
TEST(AttentionSumsTest, AreOfTwoByteTypesAndFewHeads) {
  ModelConfig config = TinyConfig(3, false);
  config.hidden_size = 2048;
  config.head_count = 16;
  config.kv_head_count = 8;
  config.head_dim = 128;
  config.intermediate_size = 64;  // so that it is the attention that takes most
  const auto bytes = [&](const WorkingShape& shape) {
    return WorkingBytes(config, {}, shape, 0, 1);
  };
  constexpr uint64_t kTokens = 32 << 10;
  constexpr uint64_t kQuery = 2048;
  WorkingShape shape = {.batch = {1, kTokens},
                        .dtype = DType::kBF16,
                        .backward = true,
                        .layer_recompute = true};
  const uint64_t one_row = bytes(shape);
  EXPECT_GT(one_row, kTokens * kQuery * (12 * 4 + 2 * 2));
  // Rows share the splits.
  shape.batch = {4, kTokens / 4};
  const uint64_t four_rows = bytes(shape);
  EXPECT_LT(four_rows, one_row - kTokens * kQuery * 8 * 4);
  shape.packed = true;
  EXPECT_EQ(bytes(shape), four_rows + kTokens * kQuery * 3 * 4);
  // More rows never need less.
  shape.packed = false;
  for (int64_t rows = 1; rows < 20; ++rows) {
    shape.batch = {rows, 4096};
    const uint64_t fewer = bytes(shape);
    ++shape.batch.sequences;
    EXPECT_GE(bytes(shape), fewer) << rows;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, WorkingMemoryTest,
    testing::Values(
        Case{.name = "stage"}, Case{.name = "layer", .layer_recompute = true},
        Case{.name = "forward", .backward = false, .with_head = false},
        Case{.name = "evaluation", .backward = false},
        Case{.name = "backward", .with_head = false},
        Case{.name = "backward_by_layer",
             .layer_recompute = true,
             .with_head = false},
        Case{.name = "one_chunk", .layer_recompute = true, .token_chunk = 1024},
        Case{.name = "llama",
             .architecture = Architecture::kLlama,
             .with_head = false},
        Case{.name = "adapters", .adapters = true, .with_head = false},
        Case{.name = "adapters_by_layer",
             .adapters = true,
             .layer_recompute = true},
        Case{.name = "adapters_forward",
             .adapters = true,
             .backward = false,
             .with_head = false},
        Case{.name = "bf16", .dtype = DType::kBF16},
        Case{.name = "bf16_by_layer",
             .dtype = DType::kBF16,
             .layer_recompute = true,
             .with_head = false},
        Case{.name = "bf16_adapters",
             .dtype = DType::kBF16,
             .adapters = true,
             .with_head = false},
        Case{.name = "bf16_adapters_undropped",
             .dtype = DType::kBF16,
             .adapters = true,
             .dropout = 0,
             .with_head = false},
        Case{.name = "bf16_adapters_of_high_rank",
             .dtype = DType::kBF16,
             .adapters = true,
             .rank = 128,
             .dropout = 0,
             .with_head = false,
             .rows = 1},
        Experts({.name = "experts", .with_head = false}),
        Experts({.name = "experts_by_layer", .layer_recompute = true}),
        Experts(
            {.name = "experts_forward", .backward = false, .with_head = false}),
        Experts(
            {.name = "experts_adapters", .adapters = true, .with_head = false}),
        Experts({.name = "experts_bf16",
                 .dtype = DType::kBF16,
                 .with_head = false}),
        Experts({.name = "experts_bf16_adapters_by_layer",
                 .dtype = DType::kBF16,
                 .adapters = true,
                 .layer_recompute = true,
                 .with_head = false}),
        SharedExpert({.name = "shared_expert", .with_head = false}),
        SharedExpert({.name = "shared_expert_by_layer",
                      .layer_recompute = true}),
        SharedExpert({.name = "shared_expert_forward",
                      .backward = false,
                      .with_head = false}),
        SharedExpert({.name = "shared_expert_adapters",
                      .adapters = true,
                      .with_head = false})),
    [](const testing::TestParamInfo<Case>& info) { return info.param.name; });

}  // namespace
}  // namespace roundhouse::worker
