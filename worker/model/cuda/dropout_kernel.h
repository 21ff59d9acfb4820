// The device code of dropout.h: the same numbers, the same bits.
#ifndef ROUNDHOUSE_WORKER_MODEL_CUDA_DROPOUT_KERNEL_H_
#define ROUNDHOUSE_WORKER_MODEL_CUDA_DROPOUT_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "worker/model/mask_numbers.h"

namespace roundhouse::worker {

// `to` = masked `from`, both [tokens, features]; they may be one.  Returns when
// it is queued.  REQUIRES: the stream's device is the thread's current one.
cudaError_t LaunchDropout(const MaskNumbers& mask, int64_t row_tokens,
                          const float* from, float* to, int64_t tokens,
                          int64_t features, cudaStream_t stream);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_CUDA_DROPOUT_KERNEL_H_
