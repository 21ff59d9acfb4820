// What `roundhouse-gpu-probe --watch` (worker/probe) tells the daemon of as it
// happens, a line each on its stdout, which a person can read too:
//
//   roundhouse-gpu-events 1
//   GPU-5a0f... xid 79
//
// The first line is there once the driver records events.
//
// Pure; thread-compatible.
#ifndef ROUNDHOUSE_BASE_WIRE_GPU_EVENT_H_
#define ROUNDHOUSE_BASE_WIRE_GPU_EVENT_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace roundhouse::wire {

inline constexpr char kGpuEventsBegin[] = "roundhouse-gpu-events 1";
inline constexpr size_t kMaxGpuEventBytes = 256;  // of a line

// The driver met an error of the GPU, or of a program on it.
struct GpuEvent {
  std::string uuid;  // printable ASCII without spaces
  uint32_t xid = 0;  // NVIDIA's number of the error

  friend bool operator==(const GpuEvent&, const GpuEvent&) = default;
};

// A line, without its end.
std::string EncodeGpuEvent(const GpuEvent& event);

// INVALID_ARGUMENT: it is no such line.
absl::StatusOr<GpuEvent> DecodeGpuEvent(absl::string_view line);

}  // namespace roundhouse::wire

#endif  // ROUNDHOUSE_BASE_WIRE_GPU_EVENT_H_
