// libFuzzer entry: an adapter_config.json is read without a crash, and what is
// accepted is the same when it is written and read again.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/log.h"
#include "server/weights/adapter_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using roundhouse::ParseAdapterConfig;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto read = ParseAdapterConfig(text, "fuzz");
  if (!read.ok()) {
    ROUNDHOUSE_CHECK(!read.status().message().empty());
    return 0;
  }
  const std::string written = roundhouse::AdapterConfigJson(
      read->config, read->base_model, read->revision);
  const auto again = ParseAdapterConfig(written, "written");
  ROUNDHOUSE_CHECK(again.ok()) << again.status() << written;
  ROUNDHOUSE_CHECK(again->config == read->config) << written;
  ROUNDHOUSE_CHECK(again->base_model == read->base_model) << written;
  return 0;
}
