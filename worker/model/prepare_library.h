// LibTorch's settings of the process.
#ifndef ROUNDHOUSE_WORKER_MODEL_PREPARE_LIBRARY_H_
#define ROUNDHOUSE_WORKER_MODEL_PREPARE_LIBRARY_H_

#include "absl/status/status.h"
#include "worker/device/native_stream.h"

namespace roundhouse::worker {

// Once, before anything is computed on a GPU: deterministic kernels only (an
// operation without one fails), fp32 products in fp32, no kernel chosen by
// timing.  For host memory it does nothing: nothing there is a choice.
// Errors: what LibTorch says of a GPU that it cannot use, INTERNAL.
absl::Status PrepareLibrary(const NativeStream& stream);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_PREPARE_LIBRARY_H_
