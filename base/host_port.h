// "HOST:PORT": a name, an IPv4 address, or an IPv6 address in brackets, and a
// port.
//
// Pure; thread-safe.
#ifndef ROUNDHOUSE_BASE_HOST_PORT_H_
#define ROUNDHOUSE_BASE_HOST_PORT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace roundhouse {

inline constexpr size_t kMaxHostBytes = 253;

struct HostPort {
  std::string host;  // without brackets; a name in small letters
  uint16_t port = 0;

  // As it is parsed again.
  std::string Text() const;
  bool operator==(const HostPort&) const = default;
};

// kInvalidArgument says what is wrong; the text itself is left to the caller.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view text);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_HOST_PORT_H_
