// How long kernels of our own take beside LibTorch's operators, measured.
#ifndef ROUNDHOUSE_WORKER_MODEL_CUDA_FUSED_TIMES_H_
#define ROUNDHOUSE_WORKER_MODEL_CUDA_FUSED_TIMES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace roundhouse::worker {

struct FusedTimes {
  std::string name;         // rms_norm, head_norm, rotary, swiglu
  double fused_ms = 0;      // forward and backward, of the fastest batch
  double operators_ms = 0;  // likewise
};

// Each over a micro-batch of `tokens` tokens in bf16, with the widths of
// Llama-3.1-8B and, of head_norm, of Qwen3-8B's queries.  Errors: LibTorch's.
absl::StatusOr<std::vector<FusedTimes>> TimeFusedKernels(int device,
                                                         int64_t tokens);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_CUDA_FUSED_TIMES_H_
