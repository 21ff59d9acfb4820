#include "tests/fakes/fake_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "worker/device/host_mark.h"

namespace roundhouse::fakes {

class FakeDevice::Buffer : public worker::DeviceBuffer {
 public:
  Buffer(FakeDevice& device, std::byte* data, uint64_t bytes)
      : device_(device), data_(data), bytes_(bytes) {}
  ~Buffer() override { device_.Forget(data_, bytes_); }
  std::byte* data() const override { return data_; }
  uint64_t bytes() const override { return bytes_; }

 private:
  FakeDevice& device_;
  std::byte* const data_;
  const uint64_t bytes_;
};

class FakeDevice::WorkStream : public worker::Stream {
 public:
  explicit WorkStream(FakeDevice& device)
      : device_(device), first_(device.streams_++ == 0) {}
  absl::Status CopyToDevice(std::byte* to, const std::byte*,
                            uint64_t bytes) override {
    device_.Upload(to, bytes);
    return device_.loss_.Check();
  }
  absl::Status CopyToHost(std::byte*, const std::byte* from,
                          uint64_t bytes) override {
    device_.Download(from, bytes);
    return device_.loss_.Check();
  }
  absl::Status CopyOnDevice(std::byte* to, const std::byte* from,
                            uint64_t) override {
    device_.Compute(0, {to, from});
    return device_.loss_.Check();
  }
  absl::Status AddFloats(float* to, const float* from, int64_t) override {
    device_.Compute(0, {to, from});
    return device_.loss_.Check();
  }
  absl::Status ZeroFloats(float* to, int64_t) override {
    device_.Compute(0, {to});
    return device_.loss_.Check();
  }
  absl::Status RoundFloats(std::byte* to, const float* from, int64_t,
                           DType) override {
    device_.Compute(0, {to, from});
    return device_.loss_.Check();
  }
  absl::Status WidenFloats(float* to, const std::byte* from, int64_t,
                           DType) override {
    device_.Compute(0, {to, from});
    return device_.loss_.Check();
  }
  absl::StatusOr<std::unique_ptr<worker::Event>> Record() override {
    RETURN_IF_ERROR(device_.loss_.Check());
    return std::make_unique<worker::HostEvent>(device_.loss_);
  }
  absl::StatusOr<std::unique_ptr<worker::TimeMark>> MarkTime() override {
    return std::make_unique<worker::HostMark>();
  }
  absl::Status BreakDevice() override {
    device_.loss_.Happen();
    return absl::OkStatus();
  }
  worker::NativeStream native() const override {
    return {.handle = first_ ? nullptr : &device_};
  }

 private:
  FakeDevice& device_;
  const bool first_;
};

FakeDevice::FakeDevice(FakeDeviceOptions options, Clock& clock)
    : options_(std::move(options)),
      account_(options_.memory_bytes),
      compute_(clock),
      uploads_(clock),
      downloads_(clock) {
  ROUNDHOUSE_CHECK(options_.link_bytes_per_second >= 0);
}

FakeDevice::~FakeDevice() {
  for (const auto& [bytes, data] : spare_) munmap(data, bytes);
}

std::byte* FakeDevice::Map(uint64_t bytes) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto spare = spare_.find(bytes);
    if (spare != spare_.end()) {
      std::byte* const data = spare->second;
      spare_.erase(spare);
      return data;
    }
  }
  void* const data = mmap(nullptr, bytes, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
}

absl::StatusOr<std::unique_ptr<worker::DeviceBuffer>> FakeDevice::Allocate(
    uint64_t bytes, const std::string& what) {
  ROUNDHOUSE_CHECK(bytes > 0) << what;
  RETURN_IF_ERROR(account_.Take(worker::DeviceBytes(bytes), what));
  std::byte* const data = Map(bytes);
  if (data == nullptr) {
    account_.Give(worker::DeviceBytes(bytes));
    return absl::ResourceExhaustedError(
        absl::StrCat("address space: ", what, " wants ", bytes,
                     " bytes: ", std::strerror(errno)));
  }
  Register(data, bytes);
  return std::make_unique<Buffer>(*this, data, bytes);
}

absl::StatusOr<std::unique_ptr<worker::Stream>> FakeDevice::NewStream() {
  return std::make_unique<WorkStream>(*this);
}

void FakeDevice::Register(const std::byte* data, uint64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  regions_[data] = {bytes, std::numeric_limits<int64_t>::min()};
}

void FakeDevice::Forget(std::byte* data, uint64_t bytes) {
  bool spare = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    regions_.erase(data);
    spare = spare_.size() < kMaxSpare;
    if (spare) spare_.emplace(bytes, data);
  }
  if (!spare) munmap(data, bytes);
  account_.Give(worker::DeviceBytes(bytes));
}

FakeDevice::Region* FakeDevice::Find(const void* address) {
  const auto* const at = static_cast<const std::byte*>(address);
  const auto after = regions_.upper_bound(at);
  if (after == regions_.begin()) return nullptr;
  auto& [begin, region] = *std::prev(after);
  return at < begin + region.bytes ? &region : nullptr;
}

int64_t FakeDevice::ReadyAt(const std::vector<const void*>& uses) {
  std::lock_guard<std::mutex> lock(mutex_);
  int64_t ready_ns = std::numeric_limits<int64_t>::min();
  for (const void* use : uses) {
    const Region* const region = Find(use);
    if (region != nullptr) ready_ns = std::max(ready_ns, region->ready_ns);
  }
  return ready_ns;
}

void FakeDevice::Finish(Engine engine, Resource::Interval interval,
                        const std::vector<const void*>& uses) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const void* use : uses) {
      Region* const region = Find(use);
      if (region != nullptr) region->ready_ns = interval.end_ns;
    }
  }
  if (options_.observe != nullptr && interval.end_ns > interval.begin_ns) {
    options_.observe(engine, interval);
  }
}

worker::LinkBandwidth FakeDevice::link_bandwidth() const {
  return {.to_device = static_cast<uint64_t>(LinkRate(Engine::kUpload)),
          .to_host = static_cast<uint64_t>(LinkRate(Engine::kDownload))};
}

double FakeDevice::LinkRate(Engine engine) const {
  return engine == Engine::kUpload && options_.upload_bytes_per_second > 0
             ? options_.upload_bytes_per_second
             : options_.link_bytes_per_second;
}

int64_t FakeDevice::LinkNs(Engine engine, uint64_t bytes) const {
  const double rate = LinkRate(engine);
  if (rate == 0) return 0;
  return std::llround(static_cast<double>(bytes) * 1e9 / rate);
}

void FakeDevice::Compute(int64_t duration_ns,
                         const std::vector<const void*>& uses) {
  Finish(Engine::kCompute, compute_.Queued(ReadyAt(uses), duration_ns), uses);
}

void FakeDevice::ComputeAsked(int64_t duration_ns,
                              const std::vector<const void*>& uses) {
  Finish(Engine::kCompute, compute_.Asked(ReadyAt(uses), duration_ns), uses);
}

void FakeDevice::Upload(const void* device, uint64_t bytes) {
  Finish(Engine::kUpload,
         uploads_.Asked(ReadyAt({device}), LinkNs(Engine::kUpload, bytes)),
         {device});
}

void FakeDevice::Download(const void* device, uint64_t bytes) {
  Finish(Engine::kDownload,
         downloads_.Queued(ReadyAt({device}), LinkNs(Engine::kDownload, bytes)),
         {device});
}

}  // namespace roundhouse::fakes
