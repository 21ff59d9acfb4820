#include "client/time_span.h"

#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace roundhouse::client {

absl::StatusOr<absl::Duration> ParseTimeSpan(const std::string& flag,
                                             const std::string& text,
                                             absl::Duration least) {
  const char unit = text.empty() ? '\0' : text.back();
  const absl::Duration one = unit == 'd'   ? absl::Hours(24)
                             : unit == 'h' ? absl::Hours(1)
                             : unit == 'm' ? absl::Minutes(1)
                                           : absl::ZeroDuration();
  const absl::string_view number =
      absl::string_view(text).substr(0, text.empty() ? 0 : text.size() - 1);
  int32_t count = 0;
  if (absl::SimpleAtoi(number, &count)) {
    const absl::Duration span = count * one;
    if (span >= least && span <= kMostDays * absl::Hours(24)) return span;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "flag --", flag, ": \"", text, "\" is no time from ",
      least < absl::Hours(1) ? "1m" : "1h", " to ", kMostDays, "d"));
}

}  // namespace roundhouse::client
