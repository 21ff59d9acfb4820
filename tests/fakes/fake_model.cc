#include "tests/fakes/fake_model.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/model/parameters.h"
#include "base/status.h"

namespace roundhouse::fakes {
namespace {

using worker::LayerWeights;

// One address per weight buffer is enough, but which share one is the device's
// business.
std::vector<const void*> Addresses(const LayerWeights& weights) {
  std::vector<const void*> addresses;
  for (const void* weight : weights.weight) {
    if (weight != nullptr) addresses.push_back(weight);
  }
  return addresses;
}

absl::Status CheckLayers(const ModelConfig& config,
                         const std::vector<LayerCost>& costs) {
  if (static_cast<int64_t>(costs.size()) == config.layer_count + 1) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the costs are of ", costs.size() - 1, " layers and the head, the model ",
      "has ", config.layer_count, " layers"));
}

class FakeStageRun : public worker::StageRun {
 public:
  FakeStageRun(FakeDevice& device, const std::vector<LayerCost>& costs,
               const worker::StageRunOptions& options)
      : device_(device), costs_(costs), options_(options) {}

  absl::Status SetInput(const void* input) override { return Touch(input); }
  absl::Status SetPositions(const int32_t* positions) override {
    return Touch(positions);
  }
  absl::Status ForwardLayer(int64_t layer,
                            const LayerWeights& weights) override {
    const LayerCost& cost = CostOf(layer);
    const bool again = options_.keep != worker::Keep::kNothing;
    Compute(again ? cost.recompute_ns : cost.forward_ns, Addresses(weights));
    return absl::OkStatus();
  }
  absl::Status CopyOutput(void* output) override { return Touch(output); }
  absl::StatusOr<worker::HeadResult> Head(const LayerWeights& weights,
                                          const int32_t* labels,
                                          worker::HeadMode mode, double,
                                          worker::GradientSink* sink) override;
  absl::Status BackwardFrom(const void* output_gradient) override {
    return Touch(output_gradient);
  }
  absl::Status BackwardLayer(int64_t layer,
                             worker::GradientSink* sink) override;
  absl::Status CopyInputGradient(void* output) override {
    return Touch(output);
  }

 private:
  const LayerCost& CostOf(int64_t layer) const {
    return costs_[static_cast<size_t>(layer)];
  }
  void Compute(int64_t duration_ns, const std::vector<const void*>& uses) {
    if (options_.stream.handle == nullptr) {
      device_.Compute(duration_ns, uses);
    } else {
      device_.ComputeAsked(duration_ns, uses);
    }
  }
  absl::Status Touch(const void* data) {
    Compute(0, {data});
    return absl::OkStatus();
  }

  FakeDevice& device_;
  const std::vector<LayerCost>& costs_;
  const worker::StageRunOptions options_;
};

absl::StatusOr<worker::HeadResult> FakeStageRun::Head(
    const LayerWeights& weights, const int32_t* labels, worker::HeadMode mode,
    double, worker::GradientSink* sink) {
  const int64_t head = options_.config.layer_count;
  const bool backward = mode == worker::HeadMode::kLossAndGradient;
  std::vector<const void*> uses = Addresses(weights);
  uses.push_back(labels);
  Compute(CostOf(head).forward_ns + (backward ? CostOf(head).backward_ns : 0),
          uses);
  if (backward && !options_.adapter.present()) {
    const int64_t hidden = options_.config.hidden_size;
    sink->OnGradient(head, ParamRole::kFinalNorm, nullptr, hidden);
    sink->OnGradient(head, ParamRole::kLmHead, nullptr,
                     hidden * options_.config.vocab_size);
  }
  worker::HeadResult result;
  result.target_tokens = options_.rows * options_.row_tokens;
  result.loss_sum =
      FakeLoss(options_.step) * static_cast<double>(result.target_tokens);
  return result;
}

absl::Status FakeStageRun::BackwardLayer(int64_t layer,
                                         worker::GradientSink* sink) {
  const LayerCost& cost = CostOf(layer);
  const bool again = options_.keep == worker::Keep::kLayer;
  Compute(cost.backward_ns + (again ? cost.recompute_ns : 0), {});
  const UnitSpec unit =
      options_.adapter.present()
          ? AdapterUnit(options_.config, options_.adapter, layer)
          : ModelUnit(options_.config, layer + 1);
  for (const ParameterSpec& parameter : unit.parameters) {
    sink->OnGradient(layer, parameter.role, nullptr, parameter.element_count);
  }
  return absl::OkStatus();
}

class FakeGenerationRun : public worker::GenerationRun {
 public:
  FakeGenerationRun(FakeDevice& device, const std::vector<LayerCost>& costs,
                    const ModelConfig& config)
      : device_(device), costs_(costs), config_(config) {}

  absl::Status SetInput(const void* input,
                        const std::vector<worker::SequenceStep>&) override {
    device_.Compute(0, {input});
    return absl::OkStatus();
  }
  absl::Status ForwardLayer(int64_t layer,
                            const LayerWeights& weights) override {
    device_.Compute(costs_[static_cast<size_t>(layer)].forward_ns,
                    Addresses(weights));
    return absl::OkStatus();
  }
  absl::Status Logits(const LayerWeights& weights, size_t, size_t count,
                      float* logits) override {
    device_.Compute(costs_.back().forward_ns, Addresses(weights));
    std::fill_n(logits, count * static_cast<size_t>(config_.vocab_size), 0.0f);
    return absl::OkStatus();
  }

 private:
  FakeDevice& device_;
  const std::vector<LayerCost>& costs_;
  const ModelConfig config_;
};

}  // namespace

double FakeLoss(uint64_t step) {
  return 1.0 + 1.0 / (1.0 + static_cast<double>(step));
}

worker::StageRunFactory FakeStageRuns(FakeDevice& device,
                                      const std::vector<LayerCost>& costs) {
  return [&device, &costs](const worker::StageRunOptions& options)
             -> absl::StatusOr<std::unique_ptr<worker::StageRun>> {
    RETURN_IF_ERROR(CheckLayers(options.config, costs));
    return std::make_unique<FakeStageRun>(device, costs, options);
  };
}

worker::GenerationFactory FakeGenerations(FakeDevice& device,
                                          const std::vector<LayerCost>& costs) {
  return [&device, &costs](const worker::GenerationOptions& options)
             -> absl::StatusOr<std::unique_ptr<worker::GenerationRun>> {
    RETURN_IF_ERROR(CheckLayers(options.config, costs));
    return std::make_unique<FakeGenerationRun>(device, costs, options.config);
  };
}

}  // namespace roundhouse::fakes
