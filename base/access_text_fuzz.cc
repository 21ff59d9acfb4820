// Addresses and tokens, as clients and admins write them.
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "base/host_port.h"
#include "base/log.h"
#include "base/token_text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const auto address = roundhouse::ParseHostPort(text);
  if (address.ok()) {
    const auto again = roundhouse::ParseHostPort(address->Text());
    ROUNDHOUSE_CHECK(again.ok() && *again == *address) << address->Text();
  }
  // Nobody guesses a checksum of 32 bits by mutation of nothing.
  if (roundhouse::IsTokenText(text)) {
    ROUNDHOUSE_CHECK(text.size() == roundhouse::kTokenTextBytes);
  }
  return 0;
}
