// NCCL inside one process, as far as cuda_peers calls it, over fake_cudart's
// streams and linked in place of NCCL's own: members are threads.
//
// A group's sends and receives are one kernel, on the stream only once
// ncclCommGetAsyncError has said success, and done when each met its
// counterpart.  What NCCL's documentation forbids ends the process
// (ROUNDHOUSE_CHECK): two calls with one communicator at a time, one with an
// aborted communicator, one while the last is in progress, copies that do not
// match.  It says nothing of speed, or of what real failures look like.
//
// Thread-safe.
#ifndef ROUNDHOUSE_WORKER_DEVICE_CUDA_FAKE_NCCL_H_
#define ROUNDHOUSE_WORKER_DEVICE_CUDA_FAKE_NCCL_H_

#include <nccl.h>

#include <atomic>

namespace roundhouse::worker {

struct FakeNccl {
  // What a test asks for.
  std::atomic<int> in_progress{2};  // answers before something is done
  std::atomic<ncclResult_t> id{ncclSuccess};     // ncclGetUniqueId returns it
  std::atomic<ncclResult_t> init{ncclSuccess};   // ncclCommInitRankConfig
  std::atomic<ncclResult_t> group{ncclSuccess};  // ncclGroupEnd
  // What a communicator that waits for others says instead.
  std::atomic<ncclResult_t> async{ncclSuccess};
  // Then the device is lost by this, too.
  std::atomic<cudaError_t> async_lost{cudaSuccess};
  std::atomic<const char*> last_error{""};  // ncclGetLastError
  std::atomic<bool> hold_aborts{false};     // ncclCommAbort does not return

  // What was counted.
  std::atomic<int> communicators{0};  // made and not aborted
  std::atomic<int> aborts{0};
  std::atomic<int> kernels{0};  // queued
};

FakeNccl& Nccl();

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_DEVICE_CUDA_FAKE_NCCL_H_
