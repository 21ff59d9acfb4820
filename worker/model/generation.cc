#include "worker/model/generation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "c10/core/GradMode.h"
#include "worker/model/borrowed_weights.h"
#include "worker/model/decoder_layer.h"
#include "worker/model/head.h"
#include "worker/model/key_value_layout.h"
#include "worker/model/layers.h"
#include "worker/model/lora.h"
#include "worker/model/on_stream.h"
#include "worker/model/tensors.h"

namespace roundhouse::worker {
namespace {

class TorchGenerationRun : public GenerationRun {
 public:
  explicit TorchGenerationRun(const GenerationOptions& options)
      : options_(options),
        device_(TorchDevice(options.stream)),
        units_(TrainingUnits(options.config, options.adapter)),
        adapter_{.config = options.adapter, .row_tokens = 1} {}

  absl::Status SetInput(const void* input,
                        const std::vector<SequenceStep>& steps) override;
  absl::Status ForwardLayer(int64_t layer,
                            const LayerWeights& weights) override;
  absl::Status Logits(const LayerWeights& weights, size_t first, size_t count,
                      float* logits) override;

 private:
  absl::Status CheckStep(const SequenceStep& step, size_t index) const;
  void SetPositions();
  absl::StatusOr<LayerTensors> BorrowWeights(int64_t layer,
                                             const LayerWeights& weights) const;
  KeyValueCache CacheOf(int64_t layer) const;

  const GenerationOptions options_;
  const at::Device device_;
  const std::vector<UnitSpec> units_;
  const AdapterContext adapter_;
  const Packing no_packing_;
  RopeTables tables_;  // of positions 0 .. table_tokens_ - 1
  int64_t table_tokens_ = 0;
  // The sequences of the step.
  std::vector<SequenceStep> steps_;
  std::vector<int64_t> last_tokens_;  // by sequence, its last row of the input
  RopeTables rope_;
  at::Tensor current_;      // [1, n, hidden], the last layer's output
  int64_t next_layer_ = 0;  // layer_count: Logits may come
};

absl::Status TorchGenerationRun::CheckStep(const SequenceStep& step,
                                           size_t index) const {
  const std::string name = absl::StrCat("sequence ", index, " of the step");
  if (step.new_tokens < 1 || step.cached_tokens < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", step.new_tokens, " new tokens behind ",
                     step.cached_tokens, " cached ones"));
  }
  const int64_t end = step.cached_tokens + step.new_tokens;
  if (end > step.capacity_tokens) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": ", end, " tokens, its cache holds ", step.capacity_tokens));
  }
  if (end > options_.config.max_position_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", end, " tokens, the model takes ",
                     options_.config.max_position_tokens));
  }
  return CheckAligned(step.cache, name + ": its cache");
}

absl::Status TorchGenerationRun::SetInput(
    const void* input, const std::vector<SequenceStep>& steps) {
  RETURN_IF_ERROR(CheckAligned(input, "the step's input"));
  if (steps.empty()) {
    return absl::InvalidArgumentError("a step without sequences");
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    RETURN_IF_ERROR(CheckStep(steps[i], i));
  }
  return GuardTorchOn(options_.stream, "rotary tables of a step", [&] {
    steps_ = steps;
    SetPositions();
    current_ = BorrowTensor(
        input, {1, last_tokens_.back() + 1, options_.config.hidden_size},
        options_.dtype, device_);
    next_layer_ = 0;
    return absl::OkStatus();
  });
}

void TorchGenerationRun::SetPositions() {
  last_tokens_.clear();
  std::vector<int32_t> positions;
  int64_t longest = 0;
  for (const SequenceStep& step : steps_) {
    const int64_t end = step.cached_tokens + step.new_tokens;
    for (int64_t at = step.cached_tokens; at < end; ++at) {
      positions.push_back(static_cast<int32_t>(at));
    }
    last_tokens_.push_back(static_cast<int64_t>(positions.size()) - 1);
    longest = std::max(longest, end);
  }
  if (longest > table_tokens_) {
    // Twice as many, because the next step comes with longer sequences.
    table_tokens_ = std::min(2 * longest, options_.config.max_position_tokens);
    tables_ = MakeRopeTables(options_.config, table_tokens_,
                             ScalarTypeOf(options_.dtype), device_);
  }
  rope_ = RopeAt(
      tables_, ToDevice(at::tensor(positions, at::kInt), device_).unsqueeze(0));
}

absl::StatusOr<LayerTensors> TorchGenerationRun::BorrowWeights(
    int64_t layer, const LayerWeights& weights) const {
  LayerTensors tensors;
  for (int unit :
       TrainingUnitsOfLayer(options_.config, options_.adapter, layer)) {
    RETURN_IF_ERROR(BorrowParameters(
        layer, units_[static_cast<size_t>(unit)].parameters, weights,
        {.dtype = UnitDType(options_.config, options_.dtype, unit),
         .device = device_},
        &tensors));
  }
  return tensors;
}

KeyValueCache TorchGenerationRun::CacheOf(int64_t layer) const {
  const ModelConfig& config = options_.config;
  KeyValueCache cache;
  for (const SequenceStep& step : steps_) {
    const KeyValueLayout layout(config, options_.dtype, step.capacity_tokens);
    const auto plane = [&](uint64_t offset) {
      return BorrowTensor(
          step.cache + offset,
          {step.capacity_tokens, config.kv_head_count, config.head_dim},
          options_.dtype, device_);
    };
    cache.sequences.push_back({.keys = plane(layout.keys_offset(layer)),
                               .values = plane(layout.values_offset(layer)),
                               .cached_tokens = step.cached_tokens,
                               .new_tokens = step.new_tokens});
  }
  return cache;
}

absl::Status TorchGenerationRun::ForwardLayer(int64_t layer,
                                              const LayerWeights& weights) {
  if (!current_.defined() || layer != next_layer_ ||
      layer >= options_.config.layer_count) {
    return absl::InvalidArgumentError(
        current_.defined()
            ? absl::StrCat("ForwardLayer of layer ", layer, ", expected ",
                           next_layer_, " of ", options_.config.layer_count)
            : "ForwardLayer before SetInput");
  }
  return GuardTorchOn(
      options_.stream, absl::StrCat("forward of layer ", layer),
      [&]() -> absl::Status {
        const c10::NoGradGuard no_grad;
        ASSIGN_OR_RETURN(const LayerTensors tensors,
                         BorrowWeights(layer, weights));
        const KeyValueCache cache = CacheOf(layer);
        current_ = DecoderLayer(
            {.config = options_.config,
             .layer = layer,
             .rope = rope_,
             .packing = no_packing_,
             .adapter = options_.adapter.present() ? &adapter_ : nullptr,
             .cache = &cache},
            tensors, current_);
        next_layer_ = layer + 1;
        return absl::OkStatus();
      });
}

absl::Status TorchGenerationRun::Logits(const LayerWeights& weights,
                                        size_t first, size_t count,
                                        float* logits) {
  if (!current_.defined() || next_layer_ != options_.config.layer_count) {
    return absl::FailedPreconditionError("Logits before the last ForwardLayer");
  }
  if (first > last_tokens_.size() || count > last_tokens_.size() - first) {
    return absl::InvalidArgumentError(absl::StrCat("Logits of sequences ",
                                                   first, "+", count, " of ",
                                                   last_tokens_.size()));
  }
  return GuardTorchOn(options_.stream, "logits", [&]() -> absl::Status {
    const c10::NoGradGuard no_grad;
    ASSIGN_OR_RETURN(
        const HeadTensors head,
        BorrowHeadTensors(options_.config, options_.dtype, device_, weights));
    const at::Tensor rows =
        ToDevice(at::tensor(last_tokens_, at::kLong), device_)
            .slice(0, static_cast<int64_t>(first),
                   static_cast<int64_t>(first + count));
    const at::Tensor states = current_.squeeze(0).index_select(0, rows);
    CopyToHost(HeadLogits(states, head.final_norm, head.lm_head,
                          options_.config.rms_norm_eps)
                   .to(at::kFloat),
               logits);
    return absl::OkStatus();
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<GenerationRun>> GenerationRun::Create(
    const GenerationOptions& options) {
  RETURN_IF_ERROR(CheckAdapter(options.adapter));
  std::unique_ptr<GenerationRun> run =
      std::make_unique<TorchGenerationRun>(options);
  return run;
}

}  // namespace roundhouse::worker
