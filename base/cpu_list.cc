#include "base/cpu_list.h"

#include <fstream>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace roundhouse {

absl::StatusOr<std::vector<int>> ParseCpuList(absl::string_view text) {
  const absl::string_view list = absl::StripAsciiWhitespace(text);
  std::vector<int> numbers;
  if (list.empty()) return numbers;
  for (const absl::string_view range : absl::StrSplit(list, ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(range, '-');
    int first = 0;
    int last = 0;
    if (ends.size() > 2 || !absl::SimpleAtoi(ends.front(), &first) ||
        !absl::SimpleAtoi(ends.back(), &last) || first < 0 || last < first ||
        last > kMaxCpuNumber || (!numbers.empty() && first <= numbers.back())) {
      return absl::InvalidArgumentError(
          absl::StrCat("not a list of CPUs or nodes: \"", list, "\""));
    }
    for (int number = first; number <= last; ++number) {
      numbers.push_back(number);
    }
  }
  return numbers;
}

absl::StatusOr<std::vector<int>> ReadCpuList(const std::string& path) {
  std::ifstream file(path);
  if (!file.is_open()) return absl::NotFoundError(absl::StrCat("no ", path));
  const std::string text((std::istreambuf_iterator<char>(file)),
                         std::istreambuf_iterator<char>());
  return ParseCpuList(text);
}

}  // namespace roundhouse
