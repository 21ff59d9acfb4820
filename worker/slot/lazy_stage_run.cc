#include "worker/slot/lazy_stage_run.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "worker/device/lazy_device.h"

namespace roundhouse::worker {
namespace {

// Gradients of one layer, in memory of the device's that the library gives back
// in the stream's order: nonsense before they are computed and afterwards.
class LayerGradients : public GradientSink {
 public:
  LayerGradients(int64_t layer, const std::vector<ParameterSpec>& parameters)
      : layer_(layer) {
    for (const ParameterSpec& one : parameters) {
      gradients_.push_back(
          {one.role, std::vector<float>(static_cast<size_t>(one.element_count),
                                        std::nanf(""))});
    }
  }
  ~LayerGradients() override {
    for (auto& [role, values] : gradients_) {
      std::fill(values.begin(), values.end(), std::nanf(""));
    }
  }

  void OnGradient(int64_t layer, ParamRole role, const float* fp32,
                  int64_t element_count) override {
    ROUNDHOUSE_CHECK(layer == layer_) << layer;
    for (auto& [known, values] : gradients_) {
      if (known != role) continue;
      std::copy(fp32, fp32 + element_count, values.begin());
      return;
    }
    gradients_.push_back({role, {fp32, fp32 + element_count}});
  }

  void Tell(GradientSink* sink) const {
    for (const auto& [role, values] : gradients_) {
      sink->OnGradient(layer_, role, values.data(),
                       static_cast<int64_t>(values.size()));
    }
  }

 private:
  const int64_t layer_;
  std::vector<std::pair<ParamRole, std::vector<float>>> gradients_;
};

class LazyStageRun : public StageRun {
 public:
  LazyStageRun(const StageRunOptions& options, std::unique_ptr<StageRun> inner)
      : options_(options), inner_(std::move(inner)) {}

  absl::Status SetInput(const void* input) override {
    return Queue([=](StageRun& run) { return run.SetInput(input); });
  }
  absl::Status SetPositions(const int32_t* positions) override {
    return Queue([own = Own(positions)](StageRun& run) {
      return run.SetPositions(own.data());
    });
  }
  absl::Status ForwardLayer(int64_t layer,
                            const LayerWeights& weights) override {
    return Queue(
        [=](StageRun& run) { return run.ForwardLayer(layer, weights); });
  }
  absl::Status SetPicks(const ExpertPick* picks) override {
    const int64_t count = options_.rows * options_.row_tokens *
                          options_.config.mixture.experts_per_token;
    return Queue([own = std::vector<ExpertPick>(picks, picks + count)](
                     StageRun& run) { return run.SetPicks(own.data()); });
  }
  absl::Status CopyPicks(ExpertPick* picks) override {
    RETURN_IF_ERROR(Queue([=](StageRun& run) { return run.CopyPicks(picks); }));
    return FinishWork(options_.stream);
  }
  absl::Status CopyOutput(void* output) override {
    return Queue([=](StageRun& run) { return run.CopyOutput(output); });
  }
  absl::StatusOr<HeadResult> Head(const LayerWeights& weights,
                                  const int32_t* labels, HeadMode mode,
                                  double loss_scale,
                                  GradientSink* sink) override {
    const auto gradients = std::make_shared<LayerGradients>(
        options_.config.layer_count, std::vector<ParameterSpec>());
    HeadResult result;
    RETURN_IF_ERROR(
        Queue([&, own = Own(labels)](StageRun& run) -> absl::Status {
          ASSIGN_OR_RETURN(result, run.Head(weights, own.data(), mode,
                                            loss_scale, gradients.get()));
          return absl::OkStatus();
        }));
    RETURN_IF_ERROR(FinishWork(options_.stream));
    return sink == nullptr ? result : Tell(gradients, sink, result);
  }
  absl::Status BackwardFrom(const void* output_gradient) override {
    return Queue(
        [=](StageRun& run) { return run.BackwardFrom(output_gradient); });
  }
  absl::Status BackwardLayer(int64_t layer, GradientSink* sink) override {
    const UnitSpec unit =
        options_.adapter.present()
            ? AdapterUnit(options_.config, options_.adapter, layer)
            : ModelUnit(options_.config, layer + 1);
    const auto gradients =
        std::make_shared<LayerGradients>(layer, unit.parameters);
    RETURN_IF_ERROR(Queue([=](StageRun& run) {
      return run.BackwardLayer(layer, gradients.get());
    }));
    return Tell(gradients, sink, absl::OkStatus());
  }
  absl::Status CopyInputGradient(void* output) override {
    return Queue([=](StageRun& run) { return run.CopyInputGradient(output); });
  }

 private:
  // A copy of host memory, which is read during the call.
  std::vector<int32_t> Own(const int32_t* tokens) const {
    return {tokens, tokens + options_.rows * options_.row_tokens};
  }

  template <typename Call>
  absl::Status Queue(Call call) {
    QueueWork(options_.stream,
              [run = inner_, call = std::move(call)] { return call(*run); });
    return absl::OkStatus();
  }

  // The sink queues work of its own; the memory goes behind that.
  template <typename Result>
  Result Tell(const std::shared_ptr<LayerGradients>& gradients,
              GradientSink* sink, Result result) {
    gradients->Tell(sink);
    QueueWork(options_.stream, [gradients] { return absl::OkStatus(); });
    return result;
  }

  const StageRunOptions options_;
  const std::shared_ptr<StageRun> inner_;
};

}  // namespace

StageRunFactory LazyStageRuns(StageRunFactory inner) {
  return [inner = std::move(inner)](const StageRunOptions& options)
             -> absl::StatusOr<std::unique_ptr<StageRun>> {
    if (options.stream.handle == nullptr) return inner(options);
    StageRunOptions eager = options;
    eager.stream = {};
    ASSIGN_OR_RETURN(std::unique_ptr<StageRun> run, inner(eager));
    return std::make_unique<LazyStageRun>(options, std::move(run));
  };
}

}  // namespace roundhouse::worker
