#include "worker/device/cpu/cpu_device.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/convert.h"
#include "base/log.h"
#include "base/status.h"
#include "worker/device/cpu/socket_peers.h"
#include "worker/device/host_mark.h"
#include "worker/device/injected_loss.h"
#include "worker/device/memory_account.h"
#include "worker/device/peers.h"

namespace roundhouse::worker {
namespace {

class CpuBuffer : public DeviceBuffer {
 public:
  CpuBuffer(MemoryAccount& account, std::byte* data, uint64_t bytes)
      : account_(account), data_(data), bytes_(bytes) {}
  ~CpuBuffer() override {
    std::free(data_);
    account_.Give(DeviceBytes(bytes_));
  }
  std::byte* data() const override { return data_; }
  uint64_t bytes() const override { return bytes_; }

 private:
  MemoryAccount& account_;
  std::byte* const data_;
  const uint64_t bytes_;
};

class CpuStream : public Stream {
 public:
  explicit CpuStream(InjectedLoss& loss) : loss_(loss) {}
  absl::Status CopyToDevice(std::byte* to, const std::byte* from_host,
                            uint64_t bytes) override {
    std::memcpy(to, from_host, bytes);
    return loss_.Check();
  }
  absl::Status CopyToHost(std::byte* to_host, const std::byte* from,
                          uint64_t bytes) override {
    std::memcpy(to_host, from, bytes);
    return loss_.Check();
  }
  absl::Status CopyOnDevice(std::byte* to, const std::byte* from,
                            uint64_t bytes) override {
    std::memcpy(to, from, bytes);
    return loss_.Check();
  }
  absl::Status AddFloats(float* __restrict to, const float* __restrict from,
                         int64_t count) override {
    for (int64_t i = 0; i < count; ++i) to[i] += from[i];
    return loss_.Check();
  }
  absl::Status ZeroFloats(float* to, int64_t count) override {
    std::memset(to, 0, static_cast<size_t>(count) * sizeof(float));
    return loss_.Check();
  }
  absl::Status RoundFloats(std::byte* to, const float* from, int64_t count,
                           DType dtype) override {
    FromF32(dtype, from, to, static_cast<uint64_t>(count));
    return loss_.Check();
  }
  absl::Status WidenFloats(float* to, const std::byte* from, int64_t count,
                           DType dtype) override {
    ToF32(dtype, from, to, static_cast<uint64_t>(count));
    return loss_.Check();
  }
  absl::StatusOr<std::unique_ptr<Event>> Record() override {
    RETURN_IF_ERROR(loss_.Check());
    return std::make_unique<HostEvent>(loss_);
  }
  absl::StatusOr<std::unique_ptr<TimeMark>> MarkTime() override {
    RETURN_IF_ERROR(loss_.Check());
    return std::make_unique<HostMark>();
  }
  absl::Status BreakDevice() override {
    loss_.Happen();
    return absl::OkStatus();
  }
  NativeStream native() const override { return {}; }

 private:
  InjectedLoss& loss_;
};

class CpuDevice : public Device {
 public:
  explicit CpuDevice(uint64_t memory_bytes) : account_(memory_bytes) {}

  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(
      uint64_t bytes, const std::string& what) override {
    ROUNDHOUSE_CHECK(bytes > 0) << what;
    RETURN_IF_ERROR(loss_.Check());
    const uint64_t cost = DeviceBytes(bytes);
    RETURN_IF_ERROR(account_.Take(cost, what));
    void* const data = std::aligned_alloc(kDeviceAlignBytes, cost);
    if (data == nullptr) {
      account_.Give(cost);
      return absl::ResourceExhaustedError(absl::StrCat(
          "host memory: ", what, " wants ", cost, " bytes for a CPU device"));
    }
    return std::make_unique<CpuBuffer>(account_, static_cast<std::byte*>(data),
                                       bytes);
  }

  absl::StatusOr<std::unique_ptr<Stream>> NewStream() override {
    RETURN_IF_ERROR(loss_.Check());
    return std::make_unique<CpuStream>(loss_);
  }
  DeviceMemory memory() const override { return account_.memory(); }
  uint64_t TakePeak() override { return account_.TakePeak(); }
  // A copy is made when it is asked for: none is ever in flight.
  CopyChunks copy_chunks() const override { return {}; }
  PeerLink* peers() override { return peers_.get(); }

 private:
  MemoryAccount account_;
  InjectedLoss loss_;
  const std::unique_ptr<PeerLink> peers_ = NewSocketPeers(loss_);
};

}  // namespace

std::unique_ptr<Device> NewCpuDevice(uint64_t memory_bytes) {
  return std::make_unique<CpuDevice>(memory_bytes);
}

}  // namespace roundhouse::worker
