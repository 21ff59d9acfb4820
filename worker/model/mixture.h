// A mixture of experts in place of a layer's MLP (Shazeer et al., "Outrageously
// Large Neural Networks", arXiv 1701.06538), with the arithmetic of
// transformers' sparse blocks: a softmax over all experts in fp32, the k
// likeliest of each token, their weights divided by their sum where the
// configuration says so and, but for some families, rounded to the model's
// dtype; each expert is a SwiGLU MLP, whose output is multiplied by the weight
// and rounded to the dtype.
//
// What transformers leaves open is settled, so that bits do not depend on the
// device or on who computes a layer again.  Of experts with equal logits the
// lower number is picked.  A token's experts stand, and their outputs add up,
// in ascending order, in fp32 and rounded once; so do gradients of the layer's
// input.  An expert's tokens stand in their order.  Nothing is added
// atomically.
#ifndef ROUNDHOUSE_WORKER_MODEL_MIXTURE_H_
#define ROUNDHOUSE_WORKER_MODEL_MIXTURE_H_

#include <cstdint>
#include <vector>

#include "ATen/ATen.h"
#include "base/model/config.h"
#include "torch/custom_class.h"
#include "worker/model/layers.h"

namespace roundhouse::worker {

// Which k experts each of n tokens goes to.  Its n * k picks stand as rows,
// sorted by expert, then by token.  A capsule, so that autograd can keep it.
struct ExpertRows : torch::CustomClassHolder {
  std::vector<ExpertPick> picks;     // [n, k], ascending for each token
  std::vector<int64_t> expert_ends;  // by expert, where its rows end
  bool keep = false;                 // a backward will follow
  // int64, on the device.
  at::Tensor experts;  // [n, k], the picks
  at::Tensor places;   // [n, k], the row of each
  at::Tensor order;   // [n * k], the pick of a row: token * k + its place there
  at::Tensor tokens;  // [n * k], the token of a row
};

// `picks` is [n, per_token], ascending for each token.  REQUIRES: there are
// such experts.
c10::intrusive_ptr<ExpertRows> MakeExpertRows(std::vector<ExpertPick> picks,
                                              int64_t per_token,
                                              int64_t expert_count,
                                              const at::Device& device);

// The experts of each of n tokens by the router's logits, [n, E], as
// MakeExpertRows takes them.  NaN counts as the largest.
std::vector<ExpertPick> PickExperts(const at::Tensor& logits, int64_t count);

// [n, hidden] of x [n, hidden].  REQUIRES: context.config.HasExperts of the
// layer.  Experts without tokens have gradients of zero.  On a GPU it waits
// for the router's picks, where none are given.
at::Tensor Mixture(const LayerContext& context, const LayerTensors& weights,
                   const at::Tensor& x);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_MIXTURE_H_
