// The device code of Stream::AddFloats, RoundFloats and WidenFloats.  Calls
// return when it is queued.
#ifndef ROUNDHOUSE_WORKER_DEVICE_CUDA_FLOAT_KERNELS_H_
#define ROUNDHOUSE_WORKER_DEVICE_CUDA_FLOAT_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

namespace roundhouse::worker {

// Fails where this build has no code for the thread's current device.
cudaError_t LoadFloatKernels();

// to[i] += from[i], rounded once; the same bits as on a CPU (no fused
// multiply-add, subnormals kept).  `count` elements that do not overlap.
// REQUIRES: count > 0; the stream's device is the thread's current one.
cudaError_t LaunchAddFloats(float* to, const float* from, int64_t count,
                            cudaStream_t stream);

// to[i] = the bits of from[i] in bf16 or fp16, to nearest even; the same as on
// a CPU, but those of a NaN.  The rest as above.
cudaError_t LaunchRoundToBf16(uint16_t* to, const float* from, int64_t count,
                              cudaStream_t stream);
cudaError_t LaunchRoundToFp16(uint16_t* to, const float* from, int64_t count,
                              cudaStream_t stream);

// to[i] = what the bits from[i] are in bf16 or fp16; the same as on a CPU, but
// the bits of a NaN.  The rest as above.
cudaError_t LaunchWidenBf16(float* to, const uint16_t* from, int64_t count,
                            cudaStream_t stream);
cudaError_t LaunchWidenFp16(float* to, const uint16_t* from, int64_t count,
                            cudaStream_t stream);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_DEVICE_CUDA_FLOAT_KERNELS_H_
