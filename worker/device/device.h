// The seam between a worker and the hardware it computes on: device memory
// with exact accounting, streams of work, events.  device/cpu implements it on
// host memory, device/cuda on a GPU.  One conformance suite
// (device_conformance.h) runs on each; open_device.h chooses.
//
// Owner: the worker process makes one Device; buffers, streams and events must
// be gone before it.
#ifndef ROUNDHOUSE_WORKER_DEVICE_DEVICE_H_
#define ROUNDHOUSE_WORKER_DEVICE_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "worker/device/native_stream.h"

namespace roundhouse::worker {

class PeerLink;

// Every buffer starts at a multiple of this and occupies a multiple of it.
inline constexpr uint64_t kDeviceAlignBytes = 64;

// What a buffer of `bytes` costs of the device's memory.
constexpr uint64_t DeviceBytes(uint64_t bytes) {
  return (bytes + kDeviceAlignBytes - 1) / kDeviceAlignBytes *
         kDeviceAlignBytes;
}

// Device memory; destroying it gives the bytes back.  Whoever destroys it makes
// sure that no work on a stream still uses it.
class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;
  // The address as the device knows it; host code may read or write through it
  // only by way of a Stream.
  virtual std::byte* data() const = 0;
  virtual uint64_t bytes() const = 0;
};

// A point in a stream's work.
class Event {
 public:
  virtual ~Event() = default;
  // Blocks until everything queued before it is complete.  ABORTED: the device
  // is lost.
  virtual absl::Status Wait() = 0;
};

// When the work queued before it was complete, by the device's clock.
class TimeMark {
 public:
  virtual ~TimeMark() = default;
  // Nanoseconds from `earlier`, a mark of the same stream, to this one.
  // REQUIRES: an Event recorded after both was waited for.  ABORTED: the device
  // is lost.
  virtual absl::StatusOr<int64_t> NsSince(const TimeMark& earlier) const = 0;
};

// An ordered queue of work on the device.  Calls may return before the work is
// done; device memory and host memory given to them stay valid and untouched
// until an Event recorded afterwards was waited for.  Thread-compatible.
// Errors: ABORTED, the device is lost; INTERNAL, the device refused the call.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual absl::Status CopyToDevice(std::byte* to, const std::byte* from_host,
                                    uint64_t bytes) = 0;
  virtual absl::Status CopyToHost(std::byte* to_host, const std::byte* from,
                                  uint64_t bytes) = 0;
  virtual absl::Status CopyOnDevice(std::byte* to, const std::byte* from,
                                    uint64_t bytes) = 0;
  // fp32, `count` elements each; `to` and `from` do not overlap.
  // to[i] += from[i], rounded once, element by element.
  virtual absl::Status AddFloats(float* to, const float* from,
                                 int64_t count) = 0;
  virtual absl::Status ZeroFloats(float* to, int64_t count) = 0;
  // to[i] = from[i] in bf16 or fp16, rounded to nearest even; what is too large
  // becomes an infinity, a NaN stays one.  REQUIRES: `dtype` is one of the two.
  virtual absl::Status RoundFloats(std::byte* to, const float* from,
                                   int64_t count, DType dtype) = 0;
  // to[i] = from[i] in fp32, from bf16 or fp16, exactly; a NaN stays one.
  // REQUIRES: `dtype` is one of the two.
  virtual absl::Status WidenFloats(float* to, const std::byte* from,
                                   int64_t count, DType dtype) = 0;
  virtual absl::StatusOr<std::unique_ptr<Event>> Record() = 0;
  virtual absl::StatusOr<std::unique_ptr<TimeMark>> MarkTime() = 0;
  // Test only: queues work that breaks the device as a kernel that traps does.
  // Once it is reached, every call and every wait of this process is ABORTED.
  virtual absl::Status BreakDevice() = 0;
  // For a library that computes: what it queues there is this stream's work.
  virtual NativeStream native() const = 0;
};

struct DeviceMemory {
  uint64_t limit_bytes = 0;
  // What libraries compute with comes out of the limit too, uncounted in
  // used_bytes: room must be left for it.
  bool with_libraries = false;
  uint64_t used_bytes = 0;
  uint64_t peak_bytes = 0;  // of used_bytes, since the last TakePeak
};

// Host memory that copies read and write without a detour, until it is
// destroyed; the memory stays longer.
class PinnedHost {
 public:
  virtual ~PinnedHost() = default;
};

// How copies of many bytes are best cut.  An activation may have to wait for
// the chunks in flight; several keep the link busy while a host thread wakes up
// from one and begins the next.
struct CopyChunks {
  uint64_t bytes = 256 << 10;
  int in_flight = 1;
};

// Bytes per second between host and device, each way by itself; 0: unknown.
struct LinkBandwidth {
  uint64_t to_device = 0;
  uint64_t to_host = 0;
};

// Thread-safe; no call blocks on work of a stream.
class Device {
 public:
  virtual ~Device() = default;

  // RESOURCE_EXHAUSTED naming `what`, the bytes wanted, free and the limit.
  // REQUIRES: bytes > 0.
  virtual absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(
      uint64_t bytes, const std::string& what) = 0;
  virtual absl::StatusOr<std::unique_ptr<Stream>> NewStream() = 0;
  virtual DeviceMemory memory() const = 0;
  // The peak so far; the next one is counted from what is used now.
  virtual uint64_t TakePeak() = 0;
  virtual CopyChunks copy_chunks() const = 0;
  // The bandwidth of copies from and to pinned memory, measured when the device
  // was opened.
  virtual LinkBandwidth link_bandwidth() const { return {}; }
  // Pins [data, data + bytes), whole pages that are there already and are not
  // pinned.  A copy under way need not end first; each later one lies in it or
  // apart from it.  Blocks for as long as the system takes, some GiB a second.
  // RESOURCE_EXHAUSTED: the system pins no more.  A device that copies from any
  // memory alike has nothing to do.
  virtual absl::StatusOr<std::unique_ptr<PinnedHost>> PinHost(std::byte* data,
                                                              uint64_t bytes) {
    (void)data;
    (void)bytes;
    return std::make_unique<PinnedHost>();
  }
  // How its memory reaches that of devices of other processes (peers.h), as
  // long as the device; null: not at all.
  virtual PeerLink* peers() { return nullptr; }
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_DEVICE_DEVICE_H_
