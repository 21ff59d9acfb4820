#include "worker/model/adamw.h"

#include "ATen/ATen.h"
#include "c10/core/GradMode.h"
#include "worker/model/tensors.h"

namespace roundhouse::worker {

absl::Status AdamWUpdate(const AdamWStep& step, const AdamWChunk& chunk) {
  return GuardTorch("AdamW update", [&] {
    const c10::NoGradGuard no_grad;
    const auto borrow = [&chunk](const float* data) {
      return std::vector<at::Tensor>{
          BorrowTensor(data, {chunk.count}, DType::kF32)};
    };
    const at::Tensor number = at::scalar_tensor(
        static_cast<double>(step.step), at::TensorOptions().dtype(at::kFloat));
    at::_fused_adamw_(borrow(chunk.master), borrow(chunk.gradient),
                      borrow(chunk.exp_avg), borrow(chunk.exp_avg_sq),
                      /*max_exp_avg_sqs=*/{}, {number}, step.learning_rate,
                      step.options.beta1, step.options.beta2,
                      chunk.weight_decay ? step.options.weight_decay : 0.0,
                      step.options.epsilon, /*amsgrad=*/false,
                      /*maximize=*/false);
    return absl::OkStatus();
  });
}

absl::Status CastMaster(const float* master, int64_t count, DType dtype,
                        void* compute) {
  return GuardTorch("cast of a master", [&] {
    const c10::NoGradGuard no_grad;
    BorrowTensor(compute, {count}, dtype)
        .copy_(BorrowTensor(master, {count}, DType::kF32));
    return absl::OkStatus();
  });
}

}  // namespace roundhouse::worker
