#include "worker/model/stage_run.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "ATen/Parallel.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "c10/core/GradMode.h"
#include "torch/csrc/autograd/autograd.h"
#include "worker/model/borrowed_weights.h"
#include "worker/model/decoder_layer.h"
#include "worker/model/head.h"
#include "worker/model/layers.h"
#include "worker/model/lora.h"
#include "worker/model/mixture.h"
#include "worker/model/on_stream.h"
#include "worker/model/tensors.h"

namespace roundhouse::worker {
namespace {

constexpr int32_t kNoTarget = -100;
AdapterContext AdapterContextOf(const StageRunOptions& options) {
  return {.config = options.adapter,
          .dropout = options.train,
          .key = {options.seed, options.step, options.micro_batch},
          .row_tokens = options.row_tokens};
}

// A layer whose backward is still to come.
struct KeptLayer {
  int64_t layer = 0;
  LayerTensors weights;
  at::Tensor input;  // [rows, row_tokens, hidden]; a leaf under kStage
  c10::intrusive_ptr<ExpertRows> experts;  // of a layer with experts
  at::Tensor output;  // with its graph under kStage, undefined under kLayer
};

class TorchStageRun : public StageRun {
 public:
  TorchStageRun(const StageRunOptions& options, RopeTables rope)
      : options_(options),
        device_(TorchDevice(options.stream)),
        units_(TrainingUnits(options.config, options.adapter)),
        adapter_(AdapterContextOf(options)),
        row_rope_(std::move(rope)),
        shape_{options.rows, options.row_tokens, options.config.hidden_size} {}

  absl::Status SetInput(const void* input) override;
  absl::Status SetPositions(const int32_t* positions) override;
  absl::Status ForwardLayer(int64_t layer,
                            const LayerWeights& weights) override;
  absl::Status SetPicks(const ExpertPick* picks) override;
  absl::Status CopyPicks(ExpertPick* picks) override;
  absl::Status CopyOutput(void* output) override;
  absl::StatusOr<HeadResult> Head(const LayerWeights& weights,
                                  const int32_t* labels, HeadMode mode,
                                  double loss_scale,
                                  GradientSink* sink) override;
  absl::Status BackwardFrom(const void* output_gradient) override;
  absl::Status BackwardLayer(int64_t layer, GradientSink* sink) override;
  absl::Status CopyInputGradient(void* output) override;

 private:
  bool KeepsGraph() const { return options_.keep == Keep::kStage; }
  bool HasAdapter() const { return options_.adapter.present(); }
  const std::vector<ParameterSpec>& DecoderParameters(int64_t layer) const {
    return units_[static_cast<size_t>(1 + layer)].parameters;
  }
  // The layer's adapters, or all of it where there are none.
  const std::vector<ParameterSpec>& Trainable(int64_t layer) const {
    if (!HasAdapter()) return DecoderParameters(layer);
    return units_[static_cast<size_t>(options_.config.layer_count + 2 + layer)]
        .parameters;
  }
  absl::StatusOr<LayerTensors> BorrowWeights(int64_t layer,
                                             const LayerWeights& weights) const;
  absl::StatusOr<HeadInputs> BorrowHead(const LayerWeights& weights,
                                        const int32_t* labels) const;
  absl::Status SetTargets(const int32_t* labels, HeadInputs* head) const;
  at::Tensor Compute(KeptLayer& layer) const {
    return DecoderLayer({.config = options_.config,
                         .layer = layer.layer,
                         .rope = rope_,
                         .packing = packing_,
                         .adapter = HasAdapter() ? &adapter_ : nullptr,
                         .experts = &layer.experts},
                        layer.weights, layer.input);
  }
  void RunForward(KeptLayer layer);
  void RunBackward(KeptLayer layer, GradientSink* sink);

  template <typename Body>
  absl::Status Guard(const std::string& what, Body body) const {
    return GuardTorchOn(options_.stream, what, std::move(body));
  }

  const StageRunOptions options_;
  const at::Device device_;
  const std::vector<UnitSpec> units_;
  const AdapterContext adapter_;
  const RopeTables row_rope_;  // of rows of one sequence
  RopeTables rope_;
  Packing packing_;
  const std::vector<int64_t> shape_;
  at::Tensor current_;  // the last layer's output, without graph
  // The next layer's, where they are given, and the last one's.
  c10::intrusive_ptr<ExpertRows> next_experts_, last_experts_;
  at::Tensor gradient_;      // of the input of the layer last passed backward
  int64_t next_layer_ = -1;  // -1: any may come first
  std::vector<KeptLayer> kept_;
};

void Deliver(int64_t layer, ParamRole role, const at::Tensor& gradient,
             GradientSink* sink) {
  const at::Tensor fp32 = gradient.detach().to(at::kFloat).contiguous();
  sink->OnGradient(layer, role, fp32.const_data_ptr<float>(), fp32.numel());
}

// REQUIRES: labels were checked.
HeadResult SumLosses(const at::Tensor& losses) {
  const at::Tensor dense = losses.to(at::kCPU).contiguous();
  HeadResult result;
  result.target_tokens = dense.size(0);
  const float* values = dense.const_data_ptr<float>();
  for (int64_t i = 0; i < result.target_tokens; ++i) {
    result.loss_sum += static_cast<double>(values[i]);
  }
  result.finite = std::isfinite(result.loss_sum);
  return result;
}

absl::Status TorchStageRun::SetInput(const void* input) {
  RETURN_IF_ERROR(CheckAligned(input, "the stage's input"));
  current_ = BorrowTensor(input, shape_, options_.dtype, device_);
  gradient_ = at::Tensor();
  next_experts_.reset();
  last_experts_.reset();
  next_layer_ = -1;
  kept_.clear();
  rope_ = row_rope_;
  packing_ = Packing();
  return absl::OkStatus();
}

absl::Status TorchStageRun::SetPositions(const int32_t* positions) {
  if (!current_.defined() || next_layer_ >= 0) {
    return absl::FailedPreconditionError(
        "SetPositions stands between SetInput and the first ForwardLayer");
  }
  ASSIGN_OR_RETURN(packing_,
                   ReadPacking(positions, options_.rows, options_.row_tokens));
  if (!packing_.packs()) return absl::OkStatus();
  return Guard("packed rows", [&] {
    const at::Tensor borrowed =
        at::from_blob(const_cast<int32_t*>(positions),
                      {options_.rows, options_.row_tokens}, at::kInt);
    rope_ = RopeAt(row_rope_, ToDevice(borrowed, device_));
    packing_.starts = ToDevice(SequenceStarts(packing_), device_);
    return absl::OkStatus();
  });
}

absl::StatusOr<LayerTensors> TorchStageRun::BorrowWeights(
    int64_t layer, const LayerWeights& weights) const {
  const bool has_backward = options_.keep != Keep::kNothing;
  LayerTensors tensors;
  RETURN_IF_ERROR(
      BorrowParameters(layer, DecoderParameters(layer), weights,
                       {.dtype = options_.dtype,
                        .device = device_,
                        .requires_grad = has_backward && !HasAdapter()},
                       &tensors));
  if (HasAdapter()) {
    RETURN_IF_ERROR(BorrowParameters(layer, Trainable(layer), weights,
                                     {.dtype = DType::kF32,
                                      .device = device_,
                                      .requires_grad = has_backward},
                                     &tensors));
  }
  return tensors;
}

void TorchStageRun::RunForward(KeptLayer layer) {
  last_experts_.reset();
  layer.experts = std::move(next_experts_);
  if (KeepsGraph()) {
    layer.input = current_.detach().requires_grad_(true);
    const c10::AutoGradMode with_grad(true);
    layer.output = Compute(layer);
    current_ = layer.output.detach();
    last_experts_ = layer.experts;
    kept_.push_back(std::move(layer));
    return;
  }
  const c10::NoGradGuard no_grad;
  layer.input = current_;
  current_ = Compute(layer);
  last_experts_ = layer.experts;
  if (options_.keep == Keep::kLayer) kept_.push_back(std::move(layer));
}

absl::Status TorchStageRun::SetPicks(const ExpertPick* picks) {
  if (!current_.defined()) {
    return absl::FailedPreconditionError("SetPicks before SetInput");
  }
  const MixtureConfig& mixture = options_.config.mixture;
  const int64_t count =
      options_.rows * options_.row_tokens * mixture.experts_per_token;
  std::vector<ExpertPick> own(picks, picks + count);
  for (const ExpertPick pick : own) {
    if (pick >= 0 && pick < mixture.expert_count) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("pick of expert ", pick, " of ", mixture.expert_count));
  }
  return Guard("picks of experts", [&] {
    next_experts_ = MakeExpertRows(std::move(own), mixture.experts_per_token,
                                   mixture.expert_count, device_);
    return absl::OkStatus();
  });
}

absl::Status TorchStageRun::CopyPicks(ExpertPick* picks) {
  if (last_experts_ == nullptr) {
    return absl::FailedPreconditionError(
        "CopyPicks, but the last layer has no experts");
  }
  std::copy(last_experts_->picks.begin(), last_experts_->picks.end(), picks);
  return absl::OkStatus();
}

absl::Status TorchStageRun::ForwardLayer(int64_t layer,
                                         const LayerWeights& weights) {
  if (!current_.defined()) {
    return absl::FailedPreconditionError("ForwardLayer before SetInput");
  }
  if (layer < 0 || layer >= options_.config.layer_count ||
      (next_layer_ >= 0 && layer != next_layer_)) {
    return absl::InvalidArgumentError(
        absl::StrCat("ForwardLayer of layer ", layer, ", expected ",
                     next_layer_, " of ", options_.config.layer_count));
  }
  if (next_experts_ != nullptr && !options_.config.HasExperts(layer)) {
    return absl::FailedPreconditionError(
        absl::StrCat("SetPicks, but layer ", layer, " has no experts"));
  }
  return Guard(absl::StrCat("forward of layer ", layer), [&]() -> absl::Status {
    KeptLayer kept{.layer = layer};
    ASSIGN_OR_RETURN(kept.weights, BorrowWeights(layer, weights));
    RunForward(std::move(kept));
    next_layer_ = layer + 1;
    return absl::OkStatus();
  });
}

absl::Status TorchStageRun::CopyOutput(void* output) {
  if (!current_.defined()) {
    return absl::FailedPreconditionError("CopyOutput before SetInput");
  }
  return Guard("copy of the output", [&] {
    CopyToMemory(current_, output);
    return absl::OkStatus();
  });
}

absl::Status TorchStageRun::SetTargets(const int32_t* labels,
                                       HeadInputs* head) const {
  std::vector<int64_t> rows, targets;
  const int64_t count = options_.rows * options_.row_tokens;
  for (int64_t i = 0; i < count; ++i) {
    if (labels[i] == kNoTarget) continue;
    if (labels[i] < 0 || labels[i] >= options_.config.vocab_size) {
      return absl::InvalidArgumentError(absl::StrCat(
          "label ", labels[i], " at position ", i,
          " is outside the vocabulary of ", options_.config.vocab_size));
    }
    rows.push_back(i);
    targets.push_back(labels[i]);
  }
  head->target_rows = ToDevice(at::tensor(rows, at::kLong), device_);
  head->targets = ToDevice(at::tensor(targets, at::kLong), device_);
  return absl::OkStatus();
}

absl::StatusOr<HeadInputs> TorchStageRun::BorrowHead(
    const LayerWeights& weights, const int32_t* labels) const {
  ASSIGN_OR_RETURN(
      const HeadTensors tensors,
      BorrowHeadTensors(options_.config, options_.dtype, device_, weights));
  HeadInputs head;
  head.x = current_.reshape({-1, options_.config.hidden_size});
  head.final_norm = tensors.final_norm;
  head.lm_head = tensors.lm_head;
  head.rms_norm_eps = options_.config.rms_norm_eps;
  head.token_chunk = options_.head_token_chunk;
  head.frozen = HasAdapter();
  RETURN_IF_ERROR(SetTargets(labels, &head));
  return head;
}

absl::StatusOr<HeadResult> TorchStageRun::Head(const LayerWeights& weights,
                                               const int32_t* labels,
                                               HeadMode mode, double loss_scale,
                                               GradientSink* sink) {
  if (!current_.defined()) {
    return absl::FailedPreconditionError("Head before SetInput");
  }
  HeadResult result;
  RETURN_IF_ERROR(Guard("the head", [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const HeadInputs head, BorrowHead(weights, labels));
    if (mode == HeadMode::kLossOnly) {
      result = SumLosses(TargetLosses(head));
      return absl::OkStatus();
    }
    HeadGradients gradients;
    result = SumLosses(TargetLossesAndGradients(head, loss_scale, &gradients));
    gradient_ = gradients.x.view(shape_);
    if (head.frozen) return absl::OkStatus();
    const int64_t layer = options_.config.layer_count;
    Deliver(layer, ParamRole::kFinalNorm, gradients.final_norm, sink);
    Deliver(layer, ParamRole::kLmHead, gradients.lm_head, sink);
    return absl::OkStatus();
  }));
  return result;
}

absl::Status TorchStageRun::BackwardFrom(const void* output_gradient) {
  RETURN_IF_ERROR(CheckAligned(output_gradient, "the output's gradient"));
  gradient_ = BorrowTensor(output_gradient, shape_, options_.dtype, device_);
  return absl::OkStatus();
}

void TorchStageRun::RunBackward(KeptLayer layer, GradientSink* sink) {
  if (!layer.output.defined()) {
    layer.input = layer.input.detach().requires_grad_(true);
    const c10::AutoGradMode with_grad(true);
    layer.output = Compute(layer);
  }
  std::vector<at::Tensor> leaves = {layer.input};
  for (const ParameterSpec& parameter : Trainable(layer.layer)) {
    leaves.push_back(layer.weights[parameter.role]);
  }
  const auto gradients =
      torch::autograd::grad({layer.output}, leaves, {gradient_});
  gradient_ = gradients[0].detach();
  size_t next = 1;
  for (const ParameterSpec& parameter : Trainable(layer.layer)) {
    Deliver(layer.layer, parameter.role, gradients[next++], sink);
  }
}

absl::Status TorchStageRun::BackwardLayer(int64_t layer, GradientSink* sink) {
  if (kept_.empty() || kept_.back().layer != layer) {
    return absl::FailedPreconditionError(absl::StrCat(
        "BackwardLayer of layer ", layer,
        kept_.empty() ? ", but no layer is kept"
                      : absl::StrCat(", expected ", kept_.back().layer)));
  }
  if (!gradient_.defined()) {
    return absl::FailedPreconditionError(
        "BackwardLayer before Head or BackwardFrom");
  }
  return Guard(absl::StrCat("backward of layer ", layer), [&] {
    last_experts_.reset();
    KeptLayer kept = std::move(kept_.back());
    kept_.pop_back();
    RunBackward(std::move(kept), sink);
    return absl::OkStatus();
  });
}

absl::Status TorchStageRun::CopyInputGradient(void* output) {
  if (!gradient_.defined() || !kept_.empty()) {
    return absl::FailedPreconditionError(
        "CopyInputGradient before the last BackwardLayer");
  }
  return Guard("copy of the input's gradient", [&] {
    CopyToMemory(gradient_, output);
    return absl::OkStatus();
  });
}

// They are words of the mask's counter.
absl::Status CheckMaskKey(const StageRunOptions& options) {
  if (options.step >> 32 == 0 && options.micro_batch >> 32 == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("step ", options.step, " and micro_batch ",
                   options.micro_batch, " must be below 2^32"));
}

absl::Status CheckOptions(const StageRunOptions& options) {
  const auto check = [](const char* name, int64_t value) {
    if (value >= 1) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(name, " must be at least 1, not ", value));
  };
  RETURN_IF_ERROR(check("rows", options.rows));
  RETURN_IF_ERROR(check("row_tokens", options.row_tokens));
  RETURN_IF_ERROR(check("head_token_chunk", options.head_token_chunk));
  RETURN_IF_ERROR(CheckAdapter(options.adapter));
  return options.adapter.present() ? CheckMaskKey(options) : absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<StageRun>> StageRun::Create(
    const StageRunOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  std::unique_ptr<StageRun> run;
  RETURN_IF_ERROR(GuardTorchOn(options.stream, "rotary tables", [&] {
    run = std::make_unique<TorchStageRun>(
        options, MakeRopeTables(options.config, options.row_tokens,
                                ScalarTypeOf(options.dtype),
                                TorchDevice(options.stream)));
    return absl::OkStatus();
  }));
  return run;
}

void SetComputeThreads(int threads) { at::set_num_threads(threads); }

}  // namespace roundhouse::worker
