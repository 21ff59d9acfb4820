#include "base/byte_size.h"

#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace roundhouse {
namespace {

constexpr double kMostBytes = 1e15;

struct Unit {
  const char* suffix;
  double bytes;
};
constexpr Unit kUnits[] = {{"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30},
                           {"TiB", 0x1p40}, {"KB", 1e3},     {"MB", 1e6},
                           {"GB", 1e9},     {"TB", 1e12}};

}  // namespace

absl::StatusOr<int64_t> ParseByteSize(const std::string& text) {
  absl::string_view number = text;
  double unit = 1;
  for (const Unit& known : kUnits) {
    if (absl::ConsumeSuffix(&number, known.suffix)) {
      unit = known.bytes;
      break;
    }
  }
  double value = 0;
  if (absl::SimpleAtod(number, &value) && value * unit >= 1 &&
      value * unit <= kMostBytes) {
    return std::llround(value * unit);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", text, "\" is no number of bytes, as in 800GiB"));
}

}  // namespace roundhouse
