// Final norm, LM head and loss, over the rows that have a target only and in
// chunks of them, so that logits of the whole micro-batch never exist at once.
//
// Per chunk: logits in the model's dtype, log-softmax in fp32, the gradient of
// the logits in fp32 times the loss scale and then cast to the model's dtype.
// The LM head's gradient adds over chunks in fp32, the first copied.
#ifndef ROUNDHOUSE_WORKER_MODEL_HEAD_H_
#define ROUNDHOUSE_WORKER_MODEL_HEAD_H_

#include <cstdint>

#include "ATen/ATen.h"

namespace roundhouse::worker {

struct HeadInputs {
  at::Tensor x;            // [n, hidden], model dtype
  at::Tensor final_norm;   // [hidden]
  at::Tensor lm_head;      // [vocab, hidden]
  at::Tensor target_rows;  // [t] int64, ascending, into x
  at::Tensor targets;      // [t] int64, the rows' labels
  double rms_norm_eps = 1e-6;
  int64_t token_chunk = 1024;
  bool frozen = false;  // no gradients of final_norm and lm_head
};

struct HeadGradients {
  at::Tensor x;  // [n, hidden], model dtype; 0 in rows without target
  // Undefined where the weights are frozen.
  at::Tensor final_norm;  // [hidden], model dtype
  at::Tensor lm_head;     // [vocab, hidden], fp32
};

// The logits of every row of `x`: [n, vocab] in the model's dtype.
at::Tensor HeadLogits(const at::Tensor& x, const at::Tensor& final_norm,
                      const at::Tensor& lm_head, double rms_norm_eps);

// Negative log-likelihood of each target, [t] fp32.
at::Tensor TargetLosses(const HeadInputs& inputs);

// The same, and the gradient of their sum times `loss_scale`.
at::Tensor TargetLossesAndGradients(const HeadInputs& inputs, double loss_scale,
                                    HeadGradients* gradients);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_HEAD_H_
