// A Stream as the library that computes knows it (worker/model/on_stream.h).
#ifndef ROUNDHOUSE_WORKER_DEVICE_NATIVE_STREAM_H_
#define ROUNDHOUSE_WORKER_DEVICE_NATIVE_STREAM_H_

namespace roundhouse::worker {

struct NativeStream {
  // Host memory: work is done when its call returns, and there is no handle.
  static constexpr int kHost = -1;

  int cuda_device = kHost;  // as CUDA counts devices in this process
  void* handle = nullptr;   // cudaStream_t; valid as long as the Stream
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_DEVICE_NATIVE_STREAM_H_
