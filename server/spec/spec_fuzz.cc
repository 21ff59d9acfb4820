// libFuzzer entry: a job file's text is read without a crash, and what is
// accepted survives its own JSON.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/log.h"
#include "server/spec/job_file.h"
#include "server/spec/spec.h"
#include "server/spec/spec_error.h"

// What one fault may show: names are cut, and values.
static constexpr size_t kMaxLineBytes = 2048;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using roundhouse::ResolvedSpec;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto file = roundhouse::ReadJobFile(text, "fuzz");
  if (file.ok()) {
    // As an answer tells it: bounded, and each fault by itself.
    const absl::Status status = file->status();
    ROUNDHOUSE_CHECK(status.message().size() <
                     roundhouse::kMaxFaultBytes + kMaxLineBytes);
    for (const auto& fault : roundhouse::ErrorFaults(status)) {
      ROUNDHOUSE_CHECK(fault.message.find('\n') == std::string::npos)
          << fault.message;
    }
  }
  const auto spec = roundhouse::ParseJobSpec(text, "fuzz");
  if (!spec.ok()) {
    ROUNDHOUSE_CHECK(!spec.status().message().empty());
    return 0;
  }
  const ResolvedSpec resolved = ResolvedSpec::Resolve(*spec, 4);
  const auto again = ResolvedSpec::FromJson(resolved.ToJson());
  ROUNDHOUSE_CHECK(again.ok()) << again.status() << resolved.ToJson();
  ROUNDHOUSE_CHECK(again->spec() == resolved.spec()) << resolved.ToJson();
  return 0;
}
