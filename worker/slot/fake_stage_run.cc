#include "worker/slot/fake_stage_run.h"

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/convert.h"
#include "base/model/parameters.h"

namespace roundhouse::worker {
namespace {

using Values = std::vector<float>;

class FakeStageRun : public StageRun {
 public:
  FakeStageRun(const StageRunOptions& options, const FakeHook& hook)
      : options_(options),
        units_(TrainingUnits(options.config, options.adapter)),
        hook_(hook),
        count_(static_cast<size_t>(options.rows * options.row_tokens *
                                   options.config.hidden_size)) {}

  absl::Status SetInput(const void* input) override {
    current_ = Read(input, count_);
    positions_.clear();
    return absl::OkStatus();
  }

  absl::Status SetPositions(const int32_t* positions) override {
    positions_.assign(positions,
                      positions + options_.rows * options_.row_tokens);
    return absl::OkStatus();
  }

  absl::Status ForwardLayer(int64_t layer,
                            const LayerWeights& weights) override {
    if (auto status = Call(layer, false); !status.ok()) return status;
    if (options_.keep != Keep::kNothing) {
      kept_.push_back({layer, current_, weights});
    }
    const Values scale = Scale(layer, weights);
    for (size_t i = 0; i < count_; ++i) {
      current_[i] = std::tanh(current_[i] * scale[i % scale.size()] +
                              PositionTerm(i) + DropoutTerm(layer));
    }
    Round(current_);
    return absl::OkStatus();
  }

  absl::Status CopyOutput(void* output) override {
    FromF32(options_.dtype, current_.data(), output, count_);
    return absl::OkStatus();
  }

  absl::StatusOr<HeadResult> Head(const LayerWeights& weights,
                                  const int32_t* labels, HeadMode mode,
                                  double loss_scale,
                                  GradientSink* sink) override {
    const int64_t head = options_.config.layer_count;
    const bool backward = mode == HeadMode::kLossAndGradient;
    if (auto status = Call(head, backward); !status.ok()) return status;
    HeadResult result;
    const auto hidden = static_cast<size_t>(options_.config.hidden_size);
    const Values norm = ReadRole(weights, ParamRole::kFinalNorm, hidden);
    const Values matrix = ReadRole(weights, ParamRole::kLmHead, hidden);
    gradient_.assign(count_, 0.0f);
    for (size_t i = 0; i < count_; ++i) {
      const int32_t label = labels[i / hidden];
      if (label < 0) continue;
      if (i % hidden == 0) ++result.target_tokens;
      const float term = current_[i] * norm[i % hidden] - matrix[i % hidden] -
                         0.01f * static_cast<float>(label);
      result.loss_sum += static_cast<double>(term) * term;
      gradient_[i] = term * static_cast<float>(loss_scale);
    }
    Round(gradient_);
    if (!backward || options_.adapter.present()) return result;
    Deliver(head, ParamRole::kFinalNorm, options_.config.hidden_size, current_,
            sink);
    Deliver(head, ParamRole::kLmHead,
            options_.config.hidden_size * options_.config.vocab_size, current_,
            sink);
    return result;
  }

  absl::Status BackwardFrom(const void* output_gradient) override {
    gradient_ = Read(output_gradient, count_);
    return absl::OkStatus();
  }

  absl::Status BackwardLayer(int64_t layer, GradientSink* sink) override {
    if (auto status = Call(layer, true); !status.ok()) return status;
    if (kept_.empty() || kept_.back().layer != layer) {
      return absl::FailedPreconditionError(
          absl::StrCat("layer ", layer, " is not the one kept last"));
    }
    const Kept kept = std::move(kept_.back());
    kept_.pop_back();
    const int trained =
        TrainingUnitsOfLayer(options_.config, options_.adapter, layer).back();
    for (const ParameterSpec& spec :
         units_[static_cast<size_t>(trained)].parameters) {
      Deliver(layer, spec.role, spec.element_count, kept.input, sink);
    }
    const Values scale = Scale(layer, kept.weights);
    for (size_t i = 0; i < count_; ++i) {
      gradient_[i] *= scale[i % scale.size()];
    }
    Round(gradient_);
    return absl::OkStatus();
  }

  absl::Status CopyInputGradient(void* output) override {
    FromF32(options_.dtype, gradient_.data(), output, count_);
    return absl::OkStatus();
  }

 private:
  struct Kept {
    int64_t layer;
    Values input;
    LayerWeights weights;
  };

  absl::Status Call(int64_t layer, bool backward) const {
    return hook_ == nullptr ? absl::OkStatus() : hook_(layer, backward);
  }
  Values Read(const void* from, size_t count) const {
    return Read(options_.dtype, from, count);
  }
  static Values Read(DType dtype, const void* from, size_t count) {
    Values values(count);
    ToF32(dtype, from, values.data(), count);
    return values;
  }
  float PositionTerm(size_t i) const {
    if (positions_.empty()) return 0;
    const auto hidden = static_cast<size_t>(options_.config.hidden_size);
    return 0.02f * static_cast<float>(positions_[i / hidden]);
  }
  float DropoutTerm(int64_t layer) const {
    if (!options_.adapter.present() || !options_.train) return 0;
    const uint64_t mixed = options_.seed * 3 + options_.step * 5 +
                           options_.micro_batch * 7 +
                           static_cast<uint64_t>(layer) * 11;
    return 0.01f * static_cast<float>(mixed % 101);
  }
  Values ReadRole(const LayerWeights& weights, ParamRole role,
                  size_t count) const {
    return Read(weights.weight[static_cast<int>(role)], count);
  }
  void Round(Values& values) const {
    std::vector<std::byte> rounded(values.size() * sizeof(float));
    FromF32(options_.dtype, values.data(), rounded.data(), values.size());
    ToF32(options_.dtype, rounded.data(), values.data(), values.size());
  }
  // Every weight of the layer shows in it.
  Values Scale(int64_t layer, const LayerWeights& weights) const {
    Values scale(static_cast<size_t>(options_.config.hidden_size), 0.5f);
    for (int unit :
         TrainingUnitsOfLayer(options_.config, options_.adapter, layer)) {
      const DType dtype = UnitDType(options_.config, options_.dtype, unit);
      for (const ParameterSpec& spec :
           units_[static_cast<size_t>(unit)].parameters) {
        const Values all =
            Read(dtype, weights.weight[static_cast<int>(spec.role)],
                 static_cast<size_t>(spec.element_count));
        for (size_t i = 0; i < all.size(); ++i) {
          scale[i % scale.size()] += 0.05f * all[i];
        }
      }
    }
    return scale;
  }
  void Deliver(int64_t layer, ParamRole role, int64_t count,
               const Values& input, GradientSink* sink) const {
    Values values(static_cast<size_t>(count));
    for (size_t j = 0; j < values.size(); ++j) {
      values[j] = gradient_[j % count_] * input[(j * 7 + 3) % count_] +
                  1e-3f * gradient_[(j / 3) % count_];
    }
    sink->OnGradient(layer, role, values.data(), count);
  }

  const StageRunOptions options_;
  const std::vector<UnitSpec> units_;
  const FakeHook hook_;
  const size_t count_;
  std::vector<int32_t> positions_;  // empty: not packed
  Values current_;
  Values gradient_;
  std::vector<Kept> kept_;
};

}  // namespace

StageRunFactory FakeStageRuns(FakeHook hook) {
  return [hook](const StageRunOptions& options)
             -> absl::StatusOr<std::unique_ptr<StageRun>> {
    return std::make_unique<FakeStageRun>(options, hook);
  };
}

}  // namespace roundhouse::worker
