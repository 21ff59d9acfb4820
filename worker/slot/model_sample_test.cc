// RunSample with the real model: the tokens are those that whole forward passes
// give.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "worker/board/job_tables.h"
#include "worker/board/sample_plan.h"
#include "worker/model/generation.h"
#include "worker/model/logits.h"
#include "worker/model/stage_run.h"
#include "worker/slot/test_job.h"

namespace roundhouse::worker {
namespace {

using Tokens = std::vector<int32_t>;

struct Case {
  const char* name;
  bool tied = false;
  DType dtype = DType::kF32;
  AdapterConfig adapter = {};
};

class ModelSampleTest : public testing::TestWithParam<Case> {
 protected:
  ModelSampleTest()
      : job_(SmallConfig(3, GetParam().tied),
             {.forward = {},
              .backward = {{0, 3}},
              .micro_batches = 1,
              .groups = 1,
              .dtype = GetParam().dtype,
              .adapter = GetParam().adapter},
             11) {
    SetComputeThreads(1);
    job_.RaiseVersions();
  }

  std::unique_ptr<TestWorker> Start(uint64_t memory_bytes) {
    TestWorkerOptions options;
    options.device_memory_bytes = memory_bytes;
    options.runner.make_run = &StageRun::Create;
    options.runner.make_generation = &GenerationRun::Create;
    options.runner.prepare_compute_thread = [] { SetComputeThreads(1); };
    return std::make_unique<TestWorker>(job_, 0, options);
  }

  // After `tokens`, by one forward pass over all of them.
  std::vector<float> Logits(const Tokens& tokens) {
    const ModelConfig& config = job_.config();
    const DType dtype = GetParam().dtype;
    const size_t row =
        static_cast<size_t>(config.hidden_size) * DTypeBytes(dtype);
    const wire::BufferRef states = job_.Allocate(tokens.size() * row);
    std::byte* const input = job_.arena().Bytes(states);
    const std::byte* const embedding =
        job_.arena().Bytes(job_.MakeSample(1, {{1}}, 1).units[0].weights);
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::memcpy(input + i * row,
                  embedding + static_cast<size_t>(tokens[i]) * row, row);
    }
    auto run =
        *StageRun::Create({.config = config,
                           .adapter = GetParam().adapter,
                           .dtype = dtype,
                           .rows = 1,
                           .row_tokens = static_cast<int64_t>(tokens.size())});
    EXPECT_TRUE(run->SetInput(input).ok());
    for (int64_t layer = 0; layer < config.layer_count; ++layer) {
      EXPECT_TRUE(run->ForwardLayer(layer, job_.Weights(layer)).ok());
    }
    EXPECT_TRUE(run->CopyOutput(input).ok());
    std::vector<float> logits(static_cast<size_t>(config.vocab_size));
    EXPECT_TRUE(ComputeLogits(config, dtype, input + (tokens.size() - 1) * row,
                              1, job_.Weights(config.layer_count),
                              logits.data())
                    .ok());
    return logits;
  }

  // Each is the largest logit's, or one that rounding may have put before it.
  void ExpectGreedy(Tokens tokens, const Tokens& drawn) {
    const float tolerance = GetParam().dtype == DType::kF32 ? 1e-5f : 5e-2f;
    for (int32_t token : drawn) {
      const std::vector<float> logits = Logits(tokens);
      const float largest = *std::max_element(logits.begin(), logits.end());
      EXPECT_GE(logits[static_cast<size_t>(token)],
                largest - tolerance * std::abs(largest));
      tokens.push_back(token);
    }
  }

  SlotTestJob job_;
};

TEST_P(ModelSampleTest, DrawsWhatForwardPassesSay) {
  constexpr uint32_t kNewTokens = 8;
  const std::vector<Tokens> prompts = {{3, 1, 4}, {15, 9}, {2, 6, 5, 35, 8, 9}};
  const wire::RunSample command = job_.MakeSample(5, prompts, kNewTokens);
  const auto tables = *ReadJobTables(job_.arena(), job_.layout_offset());
  const SamplePlan plan =
      *PlanSample(command, *tables, job_.arena(), {UINT64_MAX});
  for (uint64_t memory : {plan.least_bytes(), uint64_t{64} << 20}) {
    auto worker = Start(memory);
    const wire::Body end = worker->End(worker->Send(command));
    ASSERT_TRUE(std::holds_alternative<wire::SampleDone>(end));
    const auto& done = std::get<wire::SampleDone>(end);
    ASSERT_EQ(done.tokens.size(), prompts.size() * kNewTokens);
    for (size_t s = 0; s < prompts.size(); ++s) {
      const auto begin =
          done.tokens.begin() + static_cast<std::ptrdiff_t>(s * kNewTokens);
      ExpectGreedy(prompts[s], Tokens(begin, begin + kNewTokens));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, ModelSampleTest,
                         testing::Values(Case{"tied", true},
                                         Case{"untied", false},
                                         Case{"bf16", true, DType::kBF16},
                                         Case{"fp16", true, DType::kF16},
                                         Case{"adapter",
                                              false,
                                              DType::kF32,
                                              {.rank = 2,
                                               .alpha = 4,
                                               .dropout = 0.5,
                                               .targets = kAllLinearTargets}}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace roundhouse::worker
