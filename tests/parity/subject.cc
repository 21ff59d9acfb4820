#include "tests/parity/subject.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/convert.h"
#include "base/log.h"
#include "server/weights/adapter_files.h"
#include "worker/model/logits.h"

namespace roundhouse::parity {
namespace {

using worker::AlignedVector;
using worker::HeadMode;
using worker::LayerWeights;
using worker::SequentialBatch;
using worker::SequentialOptions;
using worker::SequentialTrainer;
using worker::StageRun;

void Require(const absl::Status& status) {
  ROUNDHOUSE_CHECK(status.ok()) << status;
}

template <typename T>
T Get(absl::StatusOr<T> value) {
  Require(value.status());
  return *std::move(value);
}

}  // namespace

std::string NameOf(const Case& which) {
  return std::string(which.name) + (which.adapted ? "_adapter" : "");
}

std::vector<float> TokenLosses(StageRun& run, const LayerWeights& head,
                               const SequentialBatch& batch) {
  const int64_t tokens = batch.rows * batch.row_tokens;
  std::vector<float> losses(static_cast<size_t>(tokens), 0.0f);
  for (int64_t i = 0; i < tokens; ++i) {
    if (batch.labels[i] == -100) continue;
    std::vector<int32_t> labels(losses.size(), -100);
    labels[static_cast<size_t>(i)] = batch.labels[i];
    const auto loss =
        Get(run.Head(head, labels.data(), HeadMode::kLossOnly, 1, nullptr));
    losses[static_cast<size_t>(i)] = static_cast<float>(loss.loss_sum);
  }
  return losses;
}

Subject::Subject(const Case& which)
    : Subject(GoldensFolder() + "/" + which.name, which.adapted) {}

Subject::Subject(const std::string& folder, bool adapted)
    : checkpoint_(folder),
      goldens_(std::make_unique<Goldens>(
          folder +
          (adapted ? "/adapter_goldens.safetensors" : "/goldens.safetensors"))),
      batches_(Goldens(folder + "/goldens.safetensors"), *goldens_),
      units_(checkpoint_.units),
      weights_(checkpoint_.weights) {
  worker::SetComputeThreads(1);
  if (!adapted) return;
  const AdapterDirectory adapter =
      Get(OpenAdapterDirectory(AnyFiles(), folder + "/adapter", config()));
  adapter_ = adapter.config;
  units_ = TrainingUnits(config(), adapter_);
  const std::vector<UnitSpec> own(
      units_.begin() + static_cast<std::ptrdiff_t>(weights_.size()),
      units_.end());
  for (auto& unit : ReadUnits(own, adapter.sources)) {
    weights_.push_back(std::move(unit));
  }
}

std::unique_ptr<SequentialTrainer> Subject::MakeTrainer(
    SequentialOptions options) const {
  options.config = config();
  options.adapter = adapter_;
  auto trainer = Get(SequentialTrainer::Create(options));
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    Require(trainer->SetUnit(static_cast<int>(unit), weights_[unit].data()));
  }
  return trainer;
}

void Subject::ForEachTrained(const Visit& visit) const {
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    if (!IsTrainable(config(), adapter_, static_cast<int64_t>(unit))) continue;
    for (const ParameterSpec& parameter : units_[unit].parameters) {
      visit(static_cast<int>(unit), parameter);
    }
  }
}

std::vector<float> Subject::Start(int unit,
                                  const ParameterSpec& parameter) const {
  const float* const values = weights_[static_cast<size_t>(unit)].data() +
                              parameter.unit_offset_elements;
  return {values, values + parameter.element_count};
}

LayerWeights Subject::WeightsOf(const SequentialTrainer& trainer, DType dtype,
                                int64_t layer) const {
  LayerWeights weights;
  for (int unit : TrainingUnitsOfLayer(config(), adapter_, layer)) {
    for (const ParameterSpec& parameter :
         units_[static_cast<size_t>(unit)].parameters) {
      const ParamRole role = parameter.role == ParamRole::kEmbedding
                                 ? ParamRole::kLmHead
                                 : parameter.role;
      weights.weight[static_cast<int>(role)] =
          trainer.compute(unit) +
          static_cast<uint64_t>(parameter.unit_offset_elements) *
              DTypeBytes(UnitDType(config(), dtype, unit));
    }
  }
  return weights;
}

AlignedVector<std::byte> Subject::Embed(const SequentialTrainer& trainer,
                                        DType dtype,
                                        const SequentialBatch& batch) const {
  const size_t row_bytes =
      static_cast<size_t>(config().hidden_size) * DTypeBytes(dtype);
  const int64_t tokens = batch.rows * batch.row_tokens;
  AlignedVector<std::byte> states(static_cast<size_t>(tokens) * row_bytes);
  for (int64_t i = 0; i < tokens; ++i) {
    std::copy_n(
        trainer.compute(0) + static_cast<size_t>(batch.tokens[i]) * row_bytes,
        row_bytes, states.data() + static_cast<size_t>(i) * row_bytes);
  }
  return states;
}

std::unique_ptr<StageRun> Subject::Forward(
    const SequentialTrainer& trainer, DType dtype, const SequentialBatch& batch,
    const AlignedVector<std::byte>& input,
    std::vector<ExpertPick>* picks) const {
  auto run = Get(StageRun::Create({.config = config(),
                                   .adapter = adapter_,
                                   .dtype = dtype,
                                   .rows = batch.rows,
                                   .row_tokens = batch.row_tokens}));
  Require(run->SetInput(input.data()));
  if (batch.positions != nullptr) Require(run->SetPositions(batch.positions));
  const auto picks_a_layer = static_cast<size_t>(
      batch.rows * batch.row_tokens * config().mixture.experts_per_token);
  for (int64_t layer = 0; layer < config().layer_count; ++layer) {
    const bool experts = config().HasExperts(layer);
    if (experts && batch.picks != nullptr) {
      Require(run->SetPicks(batch.picks + picks->size()));
    }
    Require(run->ForwardLayer(layer, WeightsOf(trainer, dtype, layer)));
    if (!experts) continue;
    picks->resize(picks->size() + picks_a_layer);
    Require(run->CopyPicks(picks->data() + picks->size() - picks_a_layer));
  }
  return run;
}

Outputs Subject::Run(DType dtype, const SequentialBatch& batch) const {
  const auto trainer = MakeTrainer({.dtype = dtype});
  const int64_t tokens = batch.rows * batch.row_tokens;
  const AlignedVector<std::byte> input = Embed(*trainer, dtype, batch);
  Outputs outputs;
  const auto run = Forward(*trainer, dtype, batch, input, &outputs.picks);
  const LayerWeights head = WeightsOf(*trainer, dtype, config().layer_count);
  AlignedVector<std::byte> output(input.size());
  Require(run->CopyOutput(output.data()));
  outputs.logits.resize(static_cast<size_t>(tokens * config().vocab_size));
  Require(worker::ComputeLogits(config(), dtype, output.data(), tokens, head,
                                outputs.logits.data()));
  outputs.token_losses = TokenLosses(*run, head, batch);
  return outputs;
}

}  // namespace roundhouse::parity
