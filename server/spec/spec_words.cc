// What is said of values that a field does not take.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/nearest_name.h"
#include "server/spec/spec_rows.h"

namespace roundhouse {

absl::Status Expected(const std::string& what, const SpecValue& got) {
  return absl::InvalidArgumentError(
      absl::StrCat("expected ", what, ", got ", Describe(got)));
}

absl::Status NotYet(const std::string& what, const std::string& part,
                    const std::string& instead) {
  return absl::UnimplementedError(
      absl::StrCat(what, " is not available in this version; ", instead,
                   " (later: ", part, ")"));
}

std::string OneOfThese(const std::vector<std::string>& words) {
  const std::string first = absl::StrJoin(words.begin(), words.end() - 1, ", ");
  return absl::StrCat(first, first.empty() ? "" : " or ", words.back());
}

absl::Status ExpectedWord(const std::vector<std::string>& words,
                          const SpecValue& got) {
  const absl::Status expected = Expected(OneOfThese(words), got);
  return absl::InvalidArgumentError(
      absl::StrCat(expected.message(), DidYouMean(got.text, words)));
}

}  // namespace roundhouse
