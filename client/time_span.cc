#include "client/time_span.h"

#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace roundhouse::client {

absl::StatusOr<absl::Duration> ParseTimeSpan(const std::string& flag,
                                             const std::string& text) {
  const char unit = text.empty() ? '\0' : text.back();
  const int64_t hours = unit == 'd' ? 24 : 1;
  const absl::string_view number =
      absl::string_view(text).substr(0, text.empty() ? 0 : text.size() - 1);
  int64_t count = 0;
  if ((unit == 'd' || unit == 'h') && absl::SimpleAtoi(number, &count) &&
      count >= 1 && count <= kMostDays * 24 / hours) {
    return absl::Hours(count * hours);
  }
  return absl::InvalidArgumentError(absl::StrCat("flag --", flag, ": \"", text,
                                                 "\" is no time from 1h to ",
                                                 kMostDays, "d"));
}

}  // namespace roundhouse::client
