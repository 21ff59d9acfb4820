#include "worker/model/device_bench.h"

#include <utility>

#include "base/convert.h"
#include "gtest/gtest.h"
#include "worker/model/prepare_library.h"

namespace roundhouse::worker {

// They are the device's until its work is done: copied on its stream, and read
// when all of them are there.
class DeviceBench::Gradients : public GradientSink {
 public:
  explicit Gradients(DeviceBench& bench) : bench_(bench) {}

  void OnGradient(int64_t layer, ParamRole role, const float* fp32,
                  int64_t element_count) override {
    const uint64_t bytes = static_cast<uint64_t>(element_count) * sizeof(float);
    std::byte* const copy = bench_.Make(bytes);
    bench_.Check(bench_.stream_->CopyOnDevice(
        copy, reinterpret_cast<const std::byte*>(fp32), bytes));
    kept_.push_back({layer, role, copy, element_count});
  }

  void GiveTo(GradientSink* sink) {
    for (const Kept& kept : kept_) {
      const std::vector<float> values = bench_.Floats(
          kept.copy, DType::kF32, static_cast<size_t>(kept.element_count));
      sink->OnGradient(kept.layer, kept.role, values.data(),
                       kept.element_count);
    }
  }

 private:
  struct Kept {
    int64_t layer = 0;
    ParamRole role;
    std::byte* copy = nullptr;
    int64_t element_count = 0;
  };

  DeviceBench& bench_;
  std::vector<Kept> kept_;
};

DeviceBench::DeviceBench(std::unique_ptr<Device> device)
    : device_(std::move(device)), stream_(*device_->NewStream()) {
  Check(PrepareLibrary(stream_->native()));
}

void DeviceBench::AddWeights(const std::byte* host, uint64_t bytes) {
  weights_[host] = {bytes, Upload(host, bytes)};
}

std::unique_ptr<StageRun> DeviceBench::Forward(
    StageRunOptions options, const Inputs& inputs,
    const std::function<LayerWeights(int64_t)>& weights) {
  options_ = std::move(options);
  options_.stream = stream_->native();
  auto run = *StageRun::Create(options_);
  Check(run->SetInput(
      Upload(inputs.states, StateCount() * DTypeBytes(options_.dtype))));
  if (inputs.positions != nullptr) Check(run->SetPositions(inputs.positions));
  const ExpertPick* picks = inputs.picks;
  const auto picks_a_layer =
      static_cast<size_t>(options_.rows * options_.row_tokens *
                          options_.config.mixture.experts_per_token);
  for (int64_t layer = 0; layer < options_.config.layer_count; ++layer) {
    if (picks != nullptr && options_.config.HasExperts(layer)) {
      Check(run->SetPicks(picks));
      picks += picks_a_layer;
    }
    Check(run->ForwardLayer(layer, OnDevice(weights(layer))));
  }
  return run;
}

HeadResult DeviceBench::Backward(StageRun& run, const LayerWeights& head,
                                 const int32_t* labels, double loss_scale,
                                 GradientSink* sink) {
  Gradients gradients(*this);
  const auto result =
      run.Head(OnDevice(head), labels, HeadMode::kLossAndGradient, loss_scale,
               &gradients);
  Check(result.status());
  for (int64_t layer = options_.config.layer_count - 1; layer >= 0; --layer) {
    Check(run.BackwardLayer(layer, &gradients));
  }
  gradients.GiveTo(sink);
  return result.ok() ? *result : HeadResult{};
}

LayerWeights DeviceBench::OnDevice(LayerWeights weights) const {
  for (const void*& weight : weights.weight) {
    if (weight == nullptr) continue;
    const auto* const at = static_cast<const std::byte*>(weight);
    auto found = weights_.upper_bound(at);
    if (found != weights_.begin()) --found;
    if (found == weights_.end() || at < found->first ||
        at >= found->first + found->second.bytes) {
      ADD_FAILURE() << "a weight that was not added";
      continue;
    }
    weight = found->second.data + (at - found->first);
  }
  return weights;
}

std::vector<float> DeviceBench::Output(StageRun& run) {
  std::byte* const output = Make(StateCount() * DTypeBytes(options_.dtype));
  Check(run.CopyOutput(output));
  return Floats(output, options_.dtype, StateCount());
}

std::vector<float> DeviceBench::InputGradient(StageRun& run) {
  std::byte* const gradient = Make(StateCount() * DTypeBytes(options_.dtype));
  Check(run.CopyInputGradient(gradient));
  return Floats(gradient, options_.dtype, StateCount());
}

void DeviceBench::Check(const absl::Status& status) {
  EXPECT_EQ(status, absl::OkStatus());
}

void DeviceBench::Wait() { Check((*stream_->Record())->Wait()); }

std::byte* DeviceBench::Make(uint64_t bytes) {
  buffers_.push_back(*device_->Allocate(bytes, "test"));
  return buffers_.back()->data();
}

std::byte* DeviceBench::Upload(const std::byte* host, uint64_t bytes) {
  std::byte* const copy = Make(bytes);
  Check(stream_->CopyToDevice(copy, host, bytes));
  Wait();
  return copy;
}

std::vector<float> DeviceBench::Floats(const std::byte* from, DType dtype,
                                       size_t count) {
  std::vector<std::byte> raw(count * DTypeBytes(dtype));
  Check(stream_->CopyToHost(raw.data(), from, raw.size()));
  Wait();
  std::vector<float> values(count);
  ToF32(dtype, raw.data(), values.data(), count);
  return values;
}

size_t DeviceBench::StateCount() const {
  return static_cast<size_t>(options_.rows * options_.row_tokens *
                             options_.config.hidden_size);
}

}  // namespace roundhouse::worker
