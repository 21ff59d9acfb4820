// The device code of worker/model/fused: one row of a norm is a warp's or, if
// it is long, a block's.  Each returns when it is queued.  REQUIRES: the
// stream's device is the thread's current one.
#ifndef ROUNDHOUSE_WORKER_MODEL_CUDA_LAUNCH_FUSED_H_
#define ROUNDHOUSE_WORKER_MODEL_CUDA_LAUNCH_FUSED_H_

#include <cuda_runtime_api.h>

#include "worker/model/fused/fused_kernels.h"

namespace roundhouse::worker {

cudaError_t Launch(const RmsNormWork& work, cudaStream_t stream);
cudaError_t Launch(const RmsNormGradientWork& work, cudaStream_t stream);
cudaError_t Launch(const RopeWork& work, cudaStream_t stream);
cudaError_t Launch(const SwiGluWork& work, cudaStream_t stream);
cudaError_t Launch(const SwiGluGradientWork& work, cudaStream_t stream);
cudaError_t Launch(const SplitWork& work, cudaStream_t stream);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_CUDA_LAUNCH_FUSED_H_
