#include <cstddef>
#include <cstdint>
#include <string>

#include "base/log.h"
#include "base/wire/gpu_event.h"
#include "base/wire/gpu_processes.h"
#include "base/wire/gpu_report.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto report = roundhouse::wire::DecodeGpuReport(
      std::string(reinterpret_cast<const char*>(data), size));
  if (report.ok()) {
    const auto text = roundhouse::wire::Encode(*report);
    ROUNDHOUSE_CHECK(text.ok()) << text.status();
    const auto again = roundhouse::wire::DecodeGpuReport(*text);
    ROUNDHOUSE_CHECK(again.ok() && *again == *report) << again.status();
  }
  const absl::string_view line(reinterpret_cast<const char*>(data), size);
  const auto event = roundhouse::wire::DecodeGpuEvent(line);
  if (event.ok()) {
    ROUNDHOUSE_CHECK(roundhouse::wire::EncodeGpuEvent(*event) == line) << line;
  }
  const auto processes = roundhouse::wire::DecodeGpuProcesses(line);
  if (processes.ok()) {
    ROUNDHOUSE_CHECK(roundhouse::wire::EncodeGpuProcesses(*processes) == line)
        << line;
  }
  return 0;
}
