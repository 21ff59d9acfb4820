#include "worker/device/measure_link.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace roundhouse::worker {
namespace {

// Three milliseconds a copy at PCIe 4.0's rate.
constexpr uint64_t kMeasuredBytes = uint64_t{64} << 20;
constexpr int kMeasuredCopies = 4;

// Host memory of our own, zero pages until it is pinned.
class HostPages {
 public:
  explicit HostPages(uint64_t bytes)
      : bytes_(bytes),
        data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  ~HostPages() {
    if (there()) munmap(data_, bytes_);
  }
  HostPages(const HostPages&) = delete;
  HostPages& operator=(const HostPages&) = delete;
  bool there() const { return data_ != MAP_FAILED; }
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  const uint64_t bytes_;
  void* const data_;
};

// The fastest copy counts: others start beside this device.
template <typename Copy>
absl::StatusOr<uint64_t> MeasureCopies(Stream& stream, Copy copy) {
  int64_t least_ns = INT64_MAX;
  for (int i = 0; i < kMeasuredCopies; ++i) {
    ASSIGN_OR_RETURN(const auto begin, stream.MarkTime());
    RETURN_IF_ERROR(copy());
    ASSIGN_OR_RETURN(const auto end, stream.MarkTime());
    ASSIGN_OR_RETURN(const auto done, stream.Record());
    RETURN_IF_ERROR(done->Wait());
    ASSIGN_OR_RETURN(const int64_t ns, end->NsSince(*begin));
    least_ns = std::min(least_ns, std::max<int64_t>(ns, 1));
  }
  return static_cast<uint64_t>(static_cast<double>(kMeasuredBytes) * 1e9 /
                               static_cast<double>(least_ns));
}

}  // namespace

absl::StatusOr<LinkBandwidth> MeasureLink(Device& device) {
  LinkBandwidth link;
  if (device.memory().limit_bytes < kMeasuredBytes) return link;
  const HostPages host(kMeasuredBytes);
  if (!host.there()) return absl::ResourceExhaustedError("mmap");
  ASSIGN_OR_RETURN(const auto pinned,
                   device.PinHost(host.data(), kMeasuredBytes));
  ASSIGN_OR_RETURN(const auto buffer,
                   device.Allocate(kMeasuredBytes, "measuring the link"));
  ASSIGN_OR_RETURN(const auto stream, device.NewStream());
  ASSIGN_OR_RETURN(link.to_device, MeasureCopies(*stream, [&] {
                     return stream->CopyToDevice(buffer->data(), host.data(),
                                                 kMeasuredBytes);
                   }));
  ASSIGN_OR_RETURN(link.to_host, MeasureCopies(*stream, [&] {
                     return stream->CopyToHost(host.data(), buffer->data(),
                                               kMeasuredBytes);
                   }));
  return link;
}

}  // namespace roundhouse::worker
