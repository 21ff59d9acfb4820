#include <cstddef>
#include <cstdint>
#include <string>

#include "base/log.h"
#include "base/wire/messages.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string datagram(reinterpret_cast<const char*>(data), size);
  const auto message = roundhouse::wire::Decode(datagram);
  if (message.ok()) {
    const auto again = roundhouse::wire::Encode(*message);
    ROUNDHOUSE_CHECK(again.ok() && again->size() == size) << again.status();
  }
  return 0;
}
