#include "base/random_bytes.h"

#include <sys/random.h>

#include <cerrno>

#include "absl/strings/escaping.h"
#include "base/log.h"

namespace roundhouse {
namespace {

constexpr size_t kIdBytes = 16;

}  // namespace

std::string RandomBytes(size_t bytes) {
  std::string out(bytes, '\0');
  for (size_t at = 0; at < bytes;) {
    const ssize_t n = getrandom(out.data() + at, bytes - at, 0);
    ROUNDHOUSE_CHECK(n > 0 || errno == EINTR) << errno;
    if (n > 0) at += static_cast<size_t>(n);
  }
  return out;
}

std::string NewRandomId() {
  return absl::BytesToHexString(RandomBytes(kIdBytes));
}

}  // namespace roundhouse
