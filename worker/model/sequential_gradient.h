// Gradient sums of the sequential reference: a whole model's, of one group, one
// round or one step.  Thread-compatible.
#ifndef ROUNDHOUSE_WORKER_MODEL_SEQUENTIAL_GRADIENT_H_
#define ROUNDHOUSE_WORKER_MODEL_SEQUENTIAL_GRADIENT_H_

#include <cstdint>
#include <map>
#include <vector>

#include "base/dtype.h"
#include "base/model/config.h"
#include "base/model/parameters.h"
#include "worker/model/aligned.h"
#include "worker/model/stage_run.h"

namespace roundhouse::worker {

class SequentialGradient : public GradientSink {
 public:
  SequentialGradient() = default;
  // `units` are TrainingUnits(config, adapter) and outlive it; frozen ones have
  // no values.
  SequentialGradient(const ModelConfig& config, const AdapterConfig& adapter,
                     const std::vector<UnitSpec>& units);

  // Called before each micro-batch; the first one's gradients are copied.
  void BeginMicroBatch() { ++micro_batches_; }
  void OnGradient(int64_t layer, ParamRole role, const float* fp32,
                  int64_t element_count) override;
  // `gradient` is [count, hidden]; token i's row goes to vocabulary row
  // tokens[i].
  void AddEmbeddingTokens(const int32_t* tokens, int64_t count,
                          const float* gradient);

  // this += right, element by element.
  void Add(const SequentialGradient& right);
  // A unit's sum, but for embedding rows, as it is read back from `dtype`.
  void Round(int unit, DType dtype);
  // Once per round, after it was added: a tied matrix gets the embedding's use.
  void AddTiedRows();
  // Once per step: an untied embedding's rows become dense.
  void DensifyEmbedding();

  const AlignedVector<float>& dense(int unit) const {
    return dense_[static_cast<size_t>(unit)];
  }

 private:
  struct Place {
    size_t unit = 0;
    int64_t offset = 0;
  };
  Place PlaceOf(int64_t layer, ParamRole role) const;

  bool tied_ = false;
  bool adapters_only_ = false;
  int64_t layer_count_ = 0;
  int64_t hidden_ = 0;
  const std::vector<UnitSpec>* units_ = nullptr;
  int64_t micro_batches_ = 0;
  // Per unit; unit 0 has the head's use of a tied matrix until AddTiedRows.
  std::vector<AlignedVector<float>> dense_;
  std::map<int32_t, std::vector<float>> embedding_rows_;
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_SEQUENTIAL_GRADIENT_H_
