// The file of logins, as a hand may have changed it.
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "base/log.h"
#include "client/tls/logins.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace roundhouse::client;  // NOLINT(build/namespaces)
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto logins = ParseLogins("f", text);
  if (!logins.ok()) {
    ROUNDHOUSE_CHECK(absl::StartsWith(logins.status().message(), "f:"));
    return 0;
  }
  ROUNDHOUSE_CHECK(logins->size() <= kMaxLogins);
  const auto again = ParseLogins("f", LoginsText(*logins));
  ROUNDHOUSE_CHECK(again.ok() && *again == *logins);
  return 0;
}
