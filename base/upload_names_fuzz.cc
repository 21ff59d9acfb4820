#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "base/log.h"
#include "base/upload_names.h"

// A reference on the first line, names of files on the others.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace roundhouse;
  const std::string text(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  const auto reference = ParseUploadReference(lines[0]);
  if (reference.ok() && reference->has_value()) {
    ROUNDHOUSE_CHECK(ToText(**reference) == lines[0]) << lines[0];
  }
  lines.erase(lines.begin());
  if (CheckRelativeNames(lines).ok()) {
    for (const std::string& name : lines) {
      ROUNDHOUSE_CHECK(name.find("..") != 0 && name[0] != '/' &&
                       name.find("/..") == std::string::npos)
          << name;
    }
  }
  return 0;
}
