// How the host worker's threads call LibTorch: each chunk on one thread, since
// the pool shares out the chunks already.
#ifndef ROUNDHOUSE_WORKER_HOST_TORCH_THREADS_H_
#define ROUNDHOUSE_WORKER_HOST_TORCH_THREADS_H_

namespace roundhouse::worker {

// LibTorch calls of the calling thread start no further threads.
void UseOneTorchThread();

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_HOST_TORCH_THREADS_H_
