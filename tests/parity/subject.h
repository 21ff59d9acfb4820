// What is compared with the real libraries: a checkpoint, or one with an
// adapter over it, with its batches and goldens.
#ifndef ROUNDHOUSE_TESTS_PARITY_SUBJECT_H_
#define ROUNDHOUSE_TESTS_PARITY_SUBJECT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/model/parameters.h"
#include "tests/parity/batches.h"
#include "tests/parity/goldens.h"
#include "worker/model/sequential.h"
#include "worker/model/stage_run.h"

namespace roundhouse::parity {

// A folder of generate.py; `adapted` with that of generate_adapters.py in it.
struct Case {
  const char* name;
  bool adapted = false;
};

inline constexpr Case kFamilies[] = {{"llama_tied"},
                                     {"llama_untied"},
                                     {"mistral_untied"},
                                     {"mixtral_untied"},
                                     {"qwen2_moe_untied"},
                                     {"qwen2_moe_windows"},
                                     {"qwen2_tied"},
                                     {"qwen2_untied"},
                                     {"qwen3_tied"},
                                     {"qwen3_untied"},
                                     {"qwen3_moe_dense_between"},
                                     {"qwen3_moe_windows"}};
inline constexpr Case kAdapters[] = {
    {"llama_tied", true},     {"mistral_untied", true},
    {"mixtral_untied", true}, {"qwen2_moe_untied", true},
    {"qwen2_untied", true},   {"qwen3_moe_dense_between", true},
    {"qwen3_tied", true}};

std::string NameOf(const Case& which);

// By the head, one target after the other: [rows, row tokens], 0 where there is
// none.  After the last layer's forward; `head` lies where `run` computes.
std::vector<float> TokenLosses(worker::StageRun& run,
                               const worker::LayerWeights& head,
                               const worker::SequentialBatch& batch);

struct Outputs {
  std::vector<float> logits;  // [rows, row tokens, vocab]
  std::vector<float> token_losses;
  // [layers with experts, rows, row tokens, experts a token]
  std::vector<ExpertPick> picks;
};

// Thread-compatible; computes with one thread.  For tests: anything wrong
// aborts with its name.
class Subject {
 public:
  explicit Subject(const Case& which);

  const ModelConfig& config() const { return checkpoint_.config; }
  const AdapterConfig& adapter() const { return adapter_; }
  const std::vector<UnitSpec>& units() const { return units_; }
  const Batches& batches() const { return batches_; }
  const Goldens& goldens() const { return *goldens_; }

  // With the subject's weights; options.config and .adapter are set here.
  std::unique_ptr<worker::SequentialTrainer> MakeTrainer(
      worker::SequentialOptions options) const;

  // Every parameter that trains, with its unit, named as in its file.
  using Visit = std::function<void(int unit, const ParameterSpec& parameter)>;
  void ForEachTrained(const Visit& visit) const;
  // As it starts.
  std::vector<float> Start(int unit, const ParameterSpec& parameter) const;

  // A layer's weights in the compute dtype; borrowed from the trainer.
  worker::LayerWeights WeightsOf(const worker::SequentialTrainer& trainer,
                                 DType dtype, int64_t layer) const;
  // The embedding's rows of the batch's tokens.
  worker::AlignedVector<std::byte> Embed(
      const worker::SequentialTrainer& trainer, DType dtype,
      const worker::SequentialBatch& batch) const;
  Outputs Run(DType dtype, const worker::SequentialBatch& batch) const;

 private:
  Subject(const std::string& folder, bool adapted);

  // Through all layers; appends what their routers pick to `picks`.
  std::unique_ptr<worker::StageRun> Forward(
      const worker::SequentialTrainer& trainer, DType dtype,
      const worker::SequentialBatch& batch,
      const worker::AlignedVector<std::byte>& input,
      std::vector<ExpertPick>* picks) const;

  const Checkpoint checkpoint_;
  std::unique_ptr<Goldens> goldens_;
  const Batches batches_;
  AdapterConfig adapter_;  // not present: the whole model trains
  std::vector<UnitSpec> units_;
  std::vector<worker::AlignedVector<float>> weights_;
};

}  // namespace roundhouse::parity

#endif  // ROUNDHOUSE_TESTS_PARITY_SUBJECT_H_
