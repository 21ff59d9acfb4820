// What the suites that need a GPU have in common; they are skipped where there
// is none.  Linked in, it is the program's main, with the worker's choices:
// cuBLAS refuses to be deterministic without.
#ifndef ROUNDHOUSE_WORKER_MODEL_CUDA_CUDA_SUITE_H_
#define ROUNDHOUSE_WORKER_MODEL_CUDA_CUDA_SUITE_H_

#include "worker/device/device_suite.h"

namespace roundhouse::worker {

// Opens the first GPU.
DeviceFactory FirstGpu();

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_CUDA_CUDA_SUITE_H_
