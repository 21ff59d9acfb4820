#include "worker/sample/fake_generation.h"

#include <cmath>
#include <memory>
#include <utility>

#include "base/convert.h"
#include "worker/model/key_value_layout.h"

namespace roundhouse::worker {
namespace {

class FakeGenerationRun : public GenerationRun {
 public:
  FakeGenerationRun(const GenerationOptions& options, FakeGenerationHook hook)
      : options_(options),
        units_(TrainingUnits(options.config, options.adapter)),
        hook_(std::move(hook)) {}

  absl::Status SetInput(const void* input,
                        const std::vector<SequenceStep>& steps) override {
    steps_ = steps;
    states_.clear();
    const auto hidden = static_cast<size_t>(options_.config.hidden_size);
    const auto* row = static_cast<const std::byte*>(input);
    for (const SequenceStep& step : steps) {
      for (int64_t i = 0; i < step.new_tokens; ++i) {
        states_.push_back(Sum(options_.dtype, row, hidden));
        row += hidden * DTypeBytes(options_.dtype);
      }
    }
    return absl::OkStatus();
  }

  absl::Status ForwardLayer(int64_t layer,
                            const LayerWeights& weights) override {
    if (auto status = Call(layer); !status.ok()) return status;
    const float scale = Scale(layer, weights);
    size_t at = 0;
    for (const SequenceStep& step : steps_) {
      for (int64_t i = 0; i < step.new_tokens; ++i, ++at) {
        states_[at] = Mix(layer, step, step.cached_tokens + i,
                          std::tanh(states_[at] + scale));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Logits(const LayerWeights& weights, size_t first, size_t count,
                      float* logits) override {
    const int64_t head = options_.config.layer_count;
    if (auto status = Call(head); !status.ok()) return status;
    const float scale = Scale(head, weights);
    int64_t last = -1;
    for (size_t s = 0; s < first + count; ++s) {
      last += steps_[s].new_tokens;
      for (int64_t v = 0; s >= first && v < options_.config.vocab_size; ++v) {
        *logits++ = std::sin(states_[static_cast<size_t>(last)] * 40 + scale +
                             static_cast<float>(v) * 1.7f);
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Call(int64_t layer) const {
    return hook_ == nullptr ? absl::OkStatus() : hook_(layer, steps_);
  }

  static float Sum(DType dtype, const void* from, size_t count) {
    std::vector<float> values(count);
    ToF32(dtype, from, values.data(), count);
    float sum = 0;
    for (size_t i = 0; i < count; ++i) {
      sum += values[i] * static_cast<float>(1 + i % 7);
    }
    return sum;
  }

  float Scale(int64_t layer, const LayerWeights& weights) const {
    float scale = 0;
    for (int unit :
         TrainingUnitsOfLayer(options_.config, options_.adapter, layer)) {
      for (const auto& spec : units_[static_cast<size_t>(unit)].parameters) {
        const ParamRole role =
            spec.role == ParamRole::kEmbedding ? ParamRole::kLmHead : spec.role;
        scale += Sum(UnitDType(options_.config, options_.dtype, unit),
                     weights.weight[static_cast<int>(role)],
                     static_cast<size_t>(spec.element_count));
      }
    }
    return std::tanh(scale * 0.01f);
  }

  // Keeps `state` as the token's key and its half as the value, and adds up
  // those of all tokens so far.
  float Mix(int64_t layer, const SequenceStep& step, int64_t token,
            float state) const {
    const KeyValueLayout layout(options_.config, options_.dtype,
                                step.capacity_tokens);
    const size_t elements = layout.token_bytes / DTypeBytes(options_.dtype);
    const auto place = [&](uint64_t plane, int64_t at) {
      return step.cache + plane +
             static_cast<uint64_t>(at) * layout.token_bytes;
    };
    const std::vector<float> keys(elements, state);
    const std::vector<float> values(elements, state / 2);
    FromF32(options_.dtype, keys.data(),
            place(layout.keys_offset(layer), token), elements);
    FromF32(options_.dtype, values.data(),
            place(layout.values_offset(layer), token), elements);
    float sum = 0;
    for (int64_t at = 0; at <= token; ++at) {
      for (uint64_t plane :
           {layout.keys_offset(layer), layout.values_offset(layer)}) {
        sum += Sum(options_.dtype, place(plane, at), elements) *
               static_cast<float>(1 + at % 5) * 0.001f;
      }
    }
    return std::tanh(state + sum);
  }

  const GenerationOptions options_;
  const std::vector<UnitSpec> units_;
  const FakeGenerationHook hook_;
  std::vector<SequenceStep> steps_;
  std::vector<float> states_;  // by new token
};

}  // namespace

GenerationFactory FakeGenerations(FakeGenerationHook hook) {
  return [hook](const GenerationOptions& options)
             -> absl::StatusOr<std::unique_ptr<GenerationRun>> {
    return std::make_unique<FakeGenerationRun>(options, hook);
  };
}

}  // namespace roundhouse::worker
