// Tiny models with seeded weights and batches, for tests.
#ifndef ROUNDHOUSE_WORKER_MODEL_TEST_MODEL_H_
#define ROUNDHOUSE_WORKER_MODEL_TEST_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/model/config.h"
#include "base/model/parameters.h"
#include "worker/model/aligned.h"
#include "worker/model/stage_run.h"

namespace roundhouse::worker {

// Odd sizes on purpose: head_dim is not hidden / heads.
ModelConfig TinyConfig(int64_t layers, bool tied);  // Qwen3

// The same sizes with what the family adds: all biases and llama3 frequencies
// (kLlama), biases of q, k, v and a window of 5 from layer 1 on (kQwen2), a
// window of 5 (kMistral).  Untied.
ModelConfig TinyFamilyConfig(Architecture architecture, int64_t layers);

// Weights of std 0.2 around 0, of norms around 1; adapters fp32.
struct TestModel {
  TestModel(const ModelConfig& config, DType dtype, uint64_t seed,
            const AdapterConfig& adapter = {});

  LayerWeights Weights(int64_t layer) const;
  // The embedding's rows of `tokens`, as stage 0's input.
  AlignedVector<std::byte> Embed(const std::vector<int32_t>& tokens) const;
  // Rounds the masters of `unit` to the compute copy again.
  void Refresh(int unit);

  DType DTypeOf(int unit) const { return UnitDType(config, dtype, unit); }

  ModelConfig config;
  DType dtype;
  AdapterConfig adapter;
  std::vector<UnitSpec> units;
  std::vector<AlignedVector<float>> master;       // per unit
  std::vector<AlignedVector<std::byte>> compute;  // per unit
};

struct TestBatch {
  int64_t rows = 0;
  int64_t row_tokens = 0;
  std::vector<int32_t> tokens;
  std::vector<int32_t> labels;  // -100 in each row's padding and last token
  std::vector<int32_t> positions = {};  // of packed rows; else empty
  // Given for layers with experts, as SequentialBatch::picks; else empty.
  std::vector<ExpertPick> picks = {};
};

// Rows of different lengths; at least one has no padding.
TestBatch MakeBatch(const ModelConfig& config, int64_t rows, int64_t row_tokens,
                    uint64_t seed);

// Keeps what it is given.
class GradientMap : public GradientSink {
 public:
  using Key = std::pair<int64_t, ParamRole>;
  void OnGradient(int64_t layer, ParamRole role, const float* fp32,
                  int64_t element_count) override;

  std::map<Key, std::vector<float>> gradients;
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_TEST_MODEL_H_
