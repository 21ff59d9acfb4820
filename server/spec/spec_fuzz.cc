// libFuzzer entry: a job file's text is read without a crash, and what is
// accepted survives its own JSON.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/log.h"
#include "server/spec/spec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using roundhouse::ResolvedSpec;
  const std::string text(reinterpret_cast<const char*>(data), size);
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
