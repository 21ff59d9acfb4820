#include <cstddef>
#include <cstdint>
#include <string>

#include "base/log.h"
#include "server/uploads/upload_record.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto files = roundhouse::ParseManifest(text);
  if (files.ok()) {
    const auto again =
        roundhouse::ParseManifest(roundhouse::ManifestText(*files));
    ROUNDHOUSE_CHECK(again.ok() && *again == *files) << again.status();
  }
  return 0;
}
