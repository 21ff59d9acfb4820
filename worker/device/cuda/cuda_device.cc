#include "worker/device/cuda/cuda_device.h"

#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status.h"
#include "worker/device/cuda/cuda_peers.h"
#include "worker/device/cuda/cuda_status.h"
#include "worker/device/cuda/current_device.h"
#include "worker/device/cuda/float_kernels.h"
#include "worker/device/cuda/memory_pool.h"
#include "worker/device/cuda/trap_kernel.h"
#include "worker/device/measure_link.h"
#include "worker/device/memory_account.h"
#include "worker/device/peers.h"

namespace roundhouse::worker {
namespace {

// Idle events that are kept for the next Record.
constexpr size_t kMaxIdleEvents = 256;

// 80 us each on a PCIe 4.0 link of 16 lanes: longer than a thread takes to wake
// up and begin the next, and an activation waits for a quarter of a millisecond
// at most.  Reckoned, not measured.
constexpr CopyChunks kCopyChunks = {.bytes = 2 << 20, .in_flight = 3};

// Making an event asks the driver; using one again does not.  Thread-safe.
class EventPool {
 public:
  EventPool(int device, unsigned flags) : device_(device), flags_(flags) {}
  ~EventPool() {
    MutexLock lock(mutex_);
    for (const cudaEvent_t event : idle_) Destroy(event);
  }

  absl::StatusOr<cudaEvent_t> Take() {
    {
      MutexLock lock(mutex_);
      if (!idle_.empty()) {
        const cudaEvent_t event = idle_.back();
        idle_.pop_back();
        return event;
      }
    }
    RETURN_IF_ERROR(MakeCurrent(device_));
    cudaEvent_t event = nullptr;
    RETURN_IF_ERROR(CudaStatus(cudaEventCreateWithFlags(&event, flags_),
                               "cudaEventCreateWithFlags"));
    return event;
  }

  // Recorded work may still be under way: the next record replaces it.
  void Give(cudaEvent_t event) {
    {
      MutexLock lock(mutex_);
      if (idle_.size() < kMaxIdleEvents) {
        idle_.push_back(event);
        return;
      }
    }
    Destroy(event);
  }

  absl::Status Wait(cudaEvent_t event) const {
    RETURN_IF_ERROR(MakeCurrent(device_));
    return CudaStatus(cudaEventSynchronize(event), "cudaEventSynchronize");
  }

  absl::StatusOr<int64_t> NsBetween(cudaEvent_t from, cudaEvent_t to) const {
    RETURN_IF_ERROR(MakeCurrent(device_));
    float milliseconds = 0;
    RETURN_IF_ERROR(CudaStatus(cudaEventElapsedTime(&milliseconds, from, to),
                               "cudaEventElapsedTime"));
    return std::llround(double{milliseconds} * 1e6);
  }

 private:
  void Destroy(cudaEvent_t event) const {
    OnDevice(device_, [event] { return cudaEventDestroy(event); });
  }

  const int device_;
  const unsigned flags_;
  Mutex mutex_;
  std::vector<cudaEvent_t> idle_ ABSL_GUARDED_BY(mutex_);
};

class CudaEvent : public Event {
 public:
  CudaEvent(EventPool& pool, cudaEvent_t event) : pool_(pool), event_(event) {}
  ~CudaEvent() override { pool_.Give(event_); }
  absl::Status Wait() override { return pool_.Wait(event_); }

 private:
  EventPool& pool_;
  const cudaEvent_t event_;
};

class CudaMark : public TimeMark {
 public:
  CudaMark(EventPool& pool, cudaEvent_t event) : pool_(pool), event_(event) {}
  ~CudaMark() override { pool_.Give(event_); }
  absl::StatusOr<int64_t> NsSince(const TimeMark& earlier) const override {
    return pool_.NsBetween(static_cast<const CudaMark&>(earlier).event_,
                           event_);
  }

 private:
  EventPool& pool_;
  const cudaEvent_t event_;
};

class CudaStream : public Stream {
 public:
  CudaStream(int device, EventPool& events, EventPool& marks,
             cudaStream_t stream)
      : device_(device), events_(events), marks_(marks), stream_(stream) {}
  // Returns at once; what is queued is still done.
  ~CudaStream() override {
    OnDevice(device_, [this] { return cudaStreamDestroy(stream_); });
  }

  absl::Status CopyToDevice(std::byte* to, const std::byte* from_host,
                            uint64_t bytes) override {
    return Copy(to, from_host, bytes, cudaMemcpyHostToDevice);
  }
  absl::Status CopyToHost(std::byte* to_host, const std::byte* from,
                          uint64_t bytes) override {
    return Copy(to_host, from, bytes, cudaMemcpyDeviceToHost);
  }
  absl::Status CopyOnDevice(std::byte* to, const std::byte* from,
                            uint64_t bytes) override {
    return Copy(to, from, bytes, cudaMemcpyDeviceToDevice);
  }

  absl::Status AddFloats(float* to, const float* from, int64_t count) override {
    if (count == 0) return absl::OkStatus();  // CUDA refuses an empty grid
    RETURN_IF_ERROR(MakeCurrent(device_));
    return CudaStatus(LaunchAddFloats(to, from, count, stream_), "AddFloats");
  }

  absl::Status ZeroFloats(float* to, int64_t count) override {
    RETURN_IF_ERROR(MakeCurrent(device_));
    return CudaStatus(
        cudaMemsetAsync(to, 0, static_cast<size_t>(count) * sizeof(float),
                        stream_),
        "cudaMemsetAsync");
  }

  absl::Status RoundFloats(std::byte* to, const float* from, int64_t count,
                           DType dtype) override {
    if (count == 0) return absl::OkStatus();
    RETURN_IF_ERROR(MakeCurrent(device_));
    auto* const bits = reinterpret_cast<uint16_t*>(to);
    return CudaStatus(dtype == DType::kBF16
                          ? LaunchRoundToBf16(bits, from, count, stream_)
                          : LaunchRoundToFp16(bits, from, count, stream_),
                      "RoundFloats");
  }

  absl::Status WidenFloats(float* to, const std::byte* from, int64_t count,
                           DType dtype) override {
    if (count == 0) return absl::OkStatus();
    RETURN_IF_ERROR(MakeCurrent(device_));
    const auto* const bits = reinterpret_cast<const uint16_t*>(from);
    return CudaStatus(dtype == DType::kBF16
                          ? LaunchWidenBf16(to, bits, count, stream_)
                          : LaunchWidenFp16(to, bits, count, stream_),
                      "WidenFloats");
  }

  absl::StatusOr<std::unique_ptr<Event>> Record() override {
    return Recorded<CudaEvent>(events_);
  }
  absl::StatusOr<std::unique_ptr<TimeMark>> MarkTime() override {
    return Recorded<CudaMark>(marks_);
  }
  absl::Status BreakDevice() override {
    RETURN_IF_ERROR(MakeCurrent(device_));
    return CudaStatus(LaunchTrap(stream_), "the kernel that traps");
  }
  NativeStream native() const override { return {device_, stream_}; }

 private:
  template <typename T>
  absl::StatusOr<std::unique_ptr<T>> Recorded(EventPool& pool) {
    ASSIGN_OR_RETURN(const cudaEvent_t handle, pool.Take());
    auto event = std::make_unique<T>(pool, handle);
    RETURN_IF_ERROR(MakeCurrent(device_));
    RETURN_IF_ERROR(
        CudaStatus(cudaEventRecord(handle, stream_), "cudaEventRecord"));
    return event;
  }

  absl::Status Copy(void* to, const void* from, uint64_t bytes,
                    cudaMemcpyKind kind) {
    RETURN_IF_ERROR(MakeCurrent(device_));
    return CudaStatus(cudaMemcpyAsync(to, from, bytes, kind, stream_),
                      "cudaMemcpyAsync");
  }

  const int device_;
  EventPool& events_;
  EventPool& marks_;
  const cudaStream_t stream_;
};

class CudaBuffer : public DeviceBuffer {
 public:
  CudaBuffer(MemoryAccount& account, MemoryPool& pool, std::byte* data,
             uint64_t bytes)
      : account_(account), pool_(pool), data_(data), bytes_(bytes) {}
  ~CudaBuffer() override {
    pool_.Free(data_);
    account_.Give(DeviceBytes(bytes_));
  }
  std::byte* data() const override { return data_; }
  uint64_t bytes() const override { return bytes_; }

 private:
  MemoryAccount& account_;
  MemoryPool& pool_;
  std::byte* const data_;
  const uint64_t bytes_;
};

class CudaPinnedHost : public PinnedHost {
 public:
  CudaPinnedHost(int device, std::byte* data) : device_(device), data_(data) {}
  ~CudaPinnedHost() override {
    OnDevice(device_, [this] { return cudaHostUnregister(data_); });
  }

 private:
  const int device_;
  std::byte* const data_;
};

class CudaDevice : public Device {
 public:
  explicit CudaDevice(const CudaDeviceOptions& options)
      : index_(options.index),
        account_(options.memory_bytes),
        pool_(options.index, options.max_open_wait),
        // Without a time a record costs less; a thread that waits sleeps.
        events_(options.index, cudaEventDisableTiming | cudaEventBlockingSync),
        marks_(options.index, cudaEventDefault) {}

  absl::Status Open() {
    RETURN_IF_ERROR(pool_.Open(account_.memory().limit_bytes));
    const absl::StatusOr<LinkBandwidth> link = MeasureLink(*this);
    account_.TakePeak();
    if (link.ok()) link_ = *link;
    if (link.ok() || absl::IsAborted(link.status())) return link.status();
    RH_LOG(kWarning) << "the device's link is not measured: "
                     << link.status().message();
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(
      uint64_t bytes, const std::string& what) override {
    ROUNDHOUSE_CHECK(bytes > 0) << what;
    const uint64_t cost = DeviceBytes(bytes);
    RETURN_IF_ERROR(account_.Take(cost, what));
    absl::StatusOr<std::byte*> data = pool_.Allocate(cost, what);
    if (!data.ok()) {
      account_.Give(cost);
      return data.status();
    }
    return std::make_unique<CudaBuffer>(account_, pool_, *data, bytes);
  }

  absl::StatusOr<std::unique_ptr<Stream>> NewStream() override {
    RETURN_IF_ERROR(MakeCurrent(index_));
    cudaStream_t stream = nullptr;
    // Non-blocking: waits for nothing that others put into CUDA's default one.
    RETURN_IF_ERROR(
        CudaStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                   "cudaStreamCreateWithFlags"));
    return std::make_unique<CudaStream>(index_, events_, marks_, stream);
  }

  absl::StatusOr<std::unique_ptr<PinnedHost>> PinHost(std::byte* data,
                                                      uint64_t bytes) override {
    RETURN_IF_ERROR(MakeCurrent(index_));
    // An error of the system's may be that of host memory: it is worked without
    // then, and a device that is gone says so to the next call.
    RETURN_IF_ERROR(
        CudaOpenStatus(cudaHostRegister(data, bytes, cudaHostRegisterDefault),
                       "cudaHostRegister"));
    return std::make_unique<CudaPinnedHost>(index_, data);
  }

  // LibTorch's allocator takes from the same pool.
  DeviceMemory memory() const override {
    DeviceMemory memory = account_.memory();
    memory.with_libraries = true;
    return memory;
  }
  uint64_t TakePeak() override { return account_.TakePeak(); }
  CopyChunks copy_chunks() const override { return kCopyChunks; }
  LinkBandwidth link_bandwidth() const override { return link_; }
  PeerLink* peers() override { return peers_.get(); }

 private:
  const int index_;
  LinkBandwidth link_;
  MemoryAccount account_;
  MemoryPool pool_;
  EventPool events_;
  EventPool marks_;
  const std::unique_ptr<PeerLink> peers_ = NewCudaPeers(index_);
};

std::string Visible() {
  const char* const devices = std::getenv("CUDA_VISIBLE_DEVICES");
  return devices == nullptr ? "CUDA_VISIBLE_DEVICES is not set"
                            : absl::StrCat("CUDA_VISIBLE_DEVICES=", devices);
}

absl::Status CheckIsThere(int index) {
  int count = 0;
  // An error leaves the count as it was; there are none, and it says why.
  const absl::Status status =
      CudaOpenStatus(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  if (!status.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no CUDA device (it takes an NVIDIA GPU and driver R580 or newer; ",
        Visible(), "): ", status.message()));
  }
  if (index < 0 || index >= count) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no CUDA device ", index, ": there are ", count, " (", Visible(), ")"));
  }
  return absl::OkStatus();
}

// Older devices than the build is for, and those without memory pools.
absl::Status CheckServes(int index) {
  RETURN_IF_ERROR(CudaOpenStatus(LoadFloatKernels(), "loading our kernels"));
  int pools = 0;
  RETURN_IF_ERROR(CudaStatus(
      cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, index),
      "cudaDeviceGetAttribute"));
  if (pools == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("CUDA device ", index, " has no memory pools"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> NewCudaDevice(
    const CudaDeviceOptions& options) {
  if (options.memory_bytes == 0) {
    return absl::InvalidArgumentError("memory_bytes must be at least 1");
  }
  RETURN_IF_ERROR(CheckIsThere(options.index));
  // Makes the device's context, which one in exclusive use refuses.
  RETURN_IF_ERROR(
      CudaOpenStatus(cudaSetDevice(options.index), "cudaSetDevice"));
  RETURN_IF_ERROR(CheckServes(options.index));
  auto device = std::make_unique<CudaDevice>(options);
  RETURN_IF_ERROR(device->Open());
  return device;
}

}  // namespace roundhouse::worker
