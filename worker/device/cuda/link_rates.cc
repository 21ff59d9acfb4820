#include "worker/device/cuda/link_rates.h"

#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "worker/device/cuda/cuda_status.h"

namespace roundhouse::worker {
namespace {

constexpr double kGib = 1 << 30;

absl::Status Errno(const char* call) {
  return absl::InternalError(absl::StrCat(call, ": ", std::strerror(errno)));
}

// As the arena's.
class SharedMemory {
 public:
  explicit SharedMemory(uint64_t bytes) : bytes_(bytes) {}
  ~SharedMemory() {
    if (registered_) cudaHostUnregister(data_);
    if (data_ != MAP_FAILED) munmap(data_, bytes_);
    if (fd_ >= 0) close(fd_);
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Every page written once.
  absl::Status Map() {
    fd_ = memfd_create("roundhouse-calibrate", MFD_CLOEXEC);
    if (fd_ < 0) return Errno("memfd_create");
    if (ftruncate(fd_, static_cast<off_t>(bytes_)) != 0) {
      return Errno("ftruncate");
    }
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (data_ == MAP_FAILED) return Errno("mmap");
    std::memset(data_, 1, bytes_);
    return absl::OkStatus();
  }
  absl::Status Register() {
    RETURN_IF_ERROR(CudaOpenStatus(
        cudaHostRegister(data_, bytes_, cudaHostRegisterPortable),
        "cudaHostRegister"));
    registered_ = true;
    return absl::OkStatus();
  }
  absl::Status Unregister() {
    registered_ = false;
    return CudaStatus(cudaHostUnregister(data_), "cudaHostUnregister");
  }
  void* data() const { return data_; }

 private:
  const uint64_t bytes_;
  int fd_ = -1;
  void* data_ = MAP_FAILED;
  bool registered_ = false;
};

// What CUDA gave, given back.  A failure to do so is of no use to anybody: the
// process ends.
struct CudaObjects {
  ~CudaObjects() {
    for (void* const buffer : buffers) cudaFree(buffer);
    for (const cudaStream_t stream : streams) cudaStreamDestroy(stream);
  }
  std::vector<void*> buffers;
  std::vector<cudaStream_t> streams;
};

absl::StatusOr<double> Seconds(const std::function<absl::Status()>& work) {
  const int64_t begun_ns = MonotonicNs();
  RETURN_IF_ERROR(work());
  return static_cast<double>(MonotonicNs() - begun_ns) * 1e-9;
}

absl::StatusOr<uint64_t> FreeDeviceBytes() {
  size_t free = 0;
  size_t total = 0;
  RETURN_IF_ERROR(CudaStatus(cudaMemGetInfo(&free, &total), "cudaMemGetInfo"));
  return free;
}

class Measurement {
 public:
  explicit Measurement(const LinkOptions& options)
      : options_(options), host_(options.register_bytes) {}

  absl::StatusOr<LinkRates> Run() {
    RETURN_IF_ERROR(Prepare());
    LinkRates rates;
    ASSIGN_OR_RETURN(rates.h2d_pageable_gbps, Rate({true, false}));
    ASSIGN_OR_RETURN(rates.d2h_pageable_gbps, Rate({false, true}));
    ASSIGN_OR_RETURN(const uint64_t free_before, FreeDeviceBytes());
    ASSIGN_OR_RETURN(const double registering,
                     Seconds([this] { return host_.Register(); }));
    ASSIGN_OR_RETURN(const uint64_t free_after, FreeDeviceBytes());
    rates.register_device_bytes =
        free_before > free_after ? free_before - free_after : 0;
    ASSIGN_OR_RETURN(rates.h2d_registered_gbps, Rate({true, false}));
    ASSIGN_OR_RETURN(rates.d2h_registered_gbps, Rate({false, true}));
    ASSIGN_OR_RETURN(rates.both_ways_registered_gbps, Rate({true, true}));
    ASSIGN_OR_RETURN(const double unregistering,
                     Seconds([this] { return host_.Unregister(); }));
    const double gib = static_cast<double>(options_.register_bytes) / kGib;
    rates.register_gib_per_second = gib / registering;
    rates.unregister_gib_per_second = gib / unregistering;
    return rates;
  }

 private:
  struct Ways {
    bool up = false;
    bool down = false;
  };

  absl::Status Prepare() {
    RETURN_IF_ERROR(host_.Map());
    RETURN_IF_ERROR(
        CudaStatus(cudaSetDevice(options_.device), "cudaSetDevice"));
    for (int i = 0; i < 2; ++i) {
      void* buffer = nullptr;
      RETURN_IF_ERROR(
          CudaStatus(cudaMalloc(&buffer, options_.copy_bytes), "cudaMalloc"));
      cuda_.buffers.push_back(buffer);
      cudaStream_t stream = nullptr;
      RETURN_IF_ERROR(
          CudaStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                     "cudaStreamCreateWithFlags"));
      cuda_.streams.push_back(stream);
    }
    return absl::OkStatus();
  }

  // The way up from the beginning of host_, the way down to its end.
  absl::Status Copy(const Ways& ways) {
    auto* const host = static_cast<std::byte*>(host_.data());
    if (ways.up) {
      RETURN_IF_ERROR(CudaStatus(
          cudaMemcpyAsync(cuda_.buffers[0], host, options_.copy_bytes,
                          cudaMemcpyHostToDevice, cuda_.streams[0]),
          "cudaMemcpyAsync"));
    }
    if (ways.down) {
      RETURN_IF_ERROR(
          CudaStatus(cudaMemcpyAsync(
                         host + (options_.register_bytes - options_.copy_bytes),
                         cuda_.buffers[1], options_.copy_bytes,
                         cudaMemcpyDeviceToHost, cuda_.streams[1]),
                     "cudaMemcpyAsync"));
    }
    for (const cudaStream_t stream : cuda_.streams) {
      RETURN_IF_ERROR(
          CudaStatus(cudaStreamSynchronize(stream), "cudaStreamSynchronize"));
    }
    return absl::OkStatus();
  }

  // 10^9 bytes a second each way.
  absl::StatusOr<double> Rate(const Ways& ways) {
    RETURN_IF_ERROR(Copy(ways));  // the first one also sets things up
    std::vector<double> seconds;
    for (int i = 0; i < options_.repeats; ++i) {
      ASSIGN_OR_RETURN(const double taken, Seconds([&] { return Copy(ways); }));
      seconds.push_back(taken);
    }
    std::sort(seconds.begin(), seconds.end());
    return static_cast<double>(options_.copy_bytes) / 1e9 /
           seconds[seconds.size() / 2];
  }

  const LinkOptions options_;
  SharedMemory host_;
  CudaObjects cuda_;
};

}  // namespace

absl::StatusOr<LinkRates> MeasureLink(const LinkOptions& options) {
  ROUNDHOUSE_CHECK(options.copy_bytes > 0 && options.repeats >= 1 &&
                   options.copy_bytes <= options.register_bytes);
  return Measurement(options).Run();
}

}  // namespace roundhouse::worker
