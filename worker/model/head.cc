#include "worker/model/head.h"

#include <algorithm>
#include <vector>

#include "c10/core/GradMode.h"
#include "torch/csrc/autograd/autograd.h"
#include "worker/model/layers.h"

namespace roundhouse::worker {
namespace {

struct Chunk {
  at::Tensor x;          // [c, hidden], normed
  at::Tensor targets;    // [c, 1]
  at::Tensor log_probs;  // [c, vocab] fp32
  at::Tensor losses;     // [c] fp32
};

int64_t ChunkCount(const HeadInputs& inputs) {
  const int64_t targets = inputs.targets.size(0);
  return (targets + inputs.token_chunk - 1) / inputs.token_chunk;
}

Chunk ForwardChunk(const HeadInputs& inputs, const at::Tensor& normed,
                   int64_t index) {
  const int64_t begin = index * inputs.token_chunk;
  const int64_t end =
      std::min(begin + inputs.token_chunk, inputs.targets.size(0));
  Chunk chunk;
  chunk.x = normed.slice(0, begin, end);
  chunk.targets = inputs.targets.slice(0, begin, end).unsqueeze(1);
  const at::Tensor logits = Linear(chunk.x, inputs.lm_head).to(at::kFloat);
  chunk.log_probs = at::log_softmax(logits, -1);
  chunk.losses = chunk.log_probs.gather(1, chunk.targets).squeeze(1).neg();
  return chunk;
}

// Overwrites the chunk's log-probabilities.
at::Tensor LogitGradient(Chunk* chunk, double loss_scale, at::ScalarType to) {
  at::Tensor gradient = chunk->log_probs.exp_();
  gradient.scatter_add_(1, chunk->targets,
                        at::full_like(chunk->targets, -1, gradient.options()));
  return gradient.mul_(loss_scale).to(to);
}

void AddInFp32(const at::Tensor& addend, at::Tensor* sum) {
  if (sum->defined()) {
    sum->add_(addend.to(at::kFloat));
  } else {
    *sum = addend.to(at::kFloat);
  }
}

void ZeroGradients(const HeadInputs& inputs, HeadGradients* gradients) {
  gradients->x = at::zeros_like(inputs.x);
  if (inputs.frozen) return;
  gradients->final_norm = at::zeros_like(inputs.final_norm);
  gradients->lm_head = at::zeros_like(
      inputs.lm_head, inputs.lm_head.options().dtype(at::kFloat));
}

}  // namespace

at::Tensor HeadLogits(const at::Tensor& x, const at::Tensor& final_norm,
                      const at::Tensor& lm_head, double rms_norm_eps) {
  return Linear(RmsNorm(x, final_norm, rms_norm_eps), lm_head);
}

at::Tensor TargetLosses(const HeadInputs& inputs) {
  const c10::NoGradGuard no_grad;
  if (inputs.targets.size(0) == 0)
    return at::zeros({0}, inputs.x.options().dtype(at::kFloat));
  const at::Tensor normed =
      RmsNorm(inputs.x.index_select(0, inputs.target_rows), inputs.final_norm,
              inputs.rms_norm_eps);
  std::vector<at::Tensor> losses;
  for (int64_t i = 0; i < ChunkCount(inputs); ++i) {
    losses.push_back(ForwardChunk(inputs, normed, i).losses);
  }
  return at::cat(losses);
}

at::Tensor TargetLossesAndGradients(const HeadInputs& inputs, double loss_scale,
                                    HeadGradients* gradients) {
  const c10::NoGradGuard no_grad;
  if (inputs.targets.size(0) == 0) {
    ZeroGradients(inputs, gradients);
    return at::zeros({0}, inputs.x.options().dtype(at::kFloat));
  }
  const at::Tensor x =
      inputs.x.index_select(0, inputs.target_rows).requires_grad_(true);
  const at::Tensor norm =
      inputs.final_norm.detach().requires_grad_(!inputs.frozen);
  at::Tensor normed;
  {
    const c10::AutoGradMode with_grad(true);
    normed = RmsNorm(x, norm, inputs.rms_norm_eps);
  }
  std::vector<at::Tensor> losses, normed_gradients;
  at::Tensor lm_head_gradient;
  for (int64_t i = 0; i < ChunkCount(inputs); ++i) {
    Chunk chunk = ForwardChunk(inputs, normed.detach(), i);
    losses.push_back(chunk.losses);
    const at::Tensor logits_gradient =
        LogitGradient(&chunk, loss_scale, inputs.x.scalar_type());
    normed_gradients.push_back(Product(logits_gradient, inputs.lm_head));
    if (inputs.frozen) continue;
    AddInFp32(Product(logits_gradient.t(), chunk.x), &lm_head_gradient);
  }
  std::vector<at::Tensor> leaves = {x};
  if (!inputs.frozen) leaves.push_back(norm);
  const auto norm_gradients =
      torch::autograd::grad({normed}, leaves, {at::cat(normed_gradients)});
  gradients->x = at::zeros_like(inputs.x).index_copy_(0, inputs.target_rows,
                                                      norm_gradients[0]);
  if (!inputs.frozen) gradients->final_norm = norm_gradients[1];
  gradients->lm_head = lm_head_gradient;
  return at::cat(losses);
}

}  // namespace roundhouse::worker
