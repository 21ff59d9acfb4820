#include "worker/model/logits.h"

#include "c10/core/GradMode.h"
#include "worker/model/head.h"
#include "worker/model/tensors.h"

namespace roundhouse::worker {

absl::Status ComputeLogits(const ModelConfig& config, DType dtype,
                           const void* states, int64_t count,
                           const LayerWeights& weights, float* logits) {
  const void* norm = weights.weight[static_cast<int>(ParamRole::kFinalNorm)];
  const void* matrix = weights.weight[static_cast<int>(ParamRole::kLmHead)];
  if (norm == nullptr || matrix == nullptr) {
    return absl::InvalidArgumentError(
        "logits need the final norm and the LM head's matrix");
  }
  return GuardTorch("logits", [&] {
    const c10::NoGradGuard no_grad;
    const int64_t hidden = config.hidden_size;
    const at::Tensor result =
        HeadLogits(BorrowTensor(states, {count, hidden}, dtype),
                   BorrowTensor(norm, {hidden}, dtype),
                   BorrowTensor(matrix, {config.vocab_size, hidden}, dtype),
                   config.rms_norm_eps);
    CopyToMemory(result.to(at::kFloat), logits);
    return absl::OkStatus();
  });
}

}  // namespace roundhouse::worker
