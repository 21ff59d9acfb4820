#include "base/byte_text.h"

#include <cstddef>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace roundhouse {

std::string ByteText(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  std::string text = absl::StrCat(bytes, " bytes");
  double value = static_cast<double>(bytes) / 1024;
  if (value < 1) return text;
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  absl::StrAppendFormat(&text, " (%.1f %s)", value, kUnits[unit]);
  return text;
}

}  // namespace roundhouse
