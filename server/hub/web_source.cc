#include "server/hub/web_source.h"

#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace roundhouse {

bool ReadContentRange(absl::string_view text, WebHead* head) {
  if (!absl::ConsumePrefix(&text, "bytes ")) return false;
  const std::vector<absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits('/', 1));
  const std::pair<absl::string_view, absl::string_view> range =
      absl::StrSplit(parts[0], absl::MaxSplits('-', 1));
  uint64_t begin = 0, last = 0, total = 0;
  if (parts.size() != 2 || !absl::SimpleAtoi(range.first, &begin) ||
      !absl::SimpleAtoi(range.second, &last) || last < begin) {
    return false;
  }
  const bool known = parts[1] != "*";
  if (known && (!absl::SimpleAtoi(parts[1], &total) || last >= total)) {
    return false;
  }
  head->begin = begin;
  if (known) head->total = total;
  return true;
}

}  // namespace roundhouse
