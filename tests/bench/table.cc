#include "tests/bench/table.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/log.h"

namespace roundhouse::bench {
namespace {

std::string Row(const Quantity& quantity, const char* between) {
  const Spread spread = Summarize(quantity.runs);
  return absl::StrCat(quantity.name, between, quantity.unit, between,
                      absl::StrFormat("%.3g", spread.median), between,
                      absl::StrFormat("%.3g", spread.low), between,
                      absl::StrFormat("%.3g", spread.high), between,
                      quantity.runs.size());
}

}  // namespace

std::string MarkdownTable(const std::vector<Quantity>& quantities) {
  std::string text =
      "| quantity | unit | median | least | greatest | runs |\n"
      "|---|---|---|---|---|---|\n";
  for (const Quantity& quantity : quantities) {
    absl::StrAppend(&text, "| ", Row(quantity, " | "), " |\n");
  }
  return text;
}

std::string CsvTable(const std::vector<Quantity>& quantities) {
  std::string text = "quantity,unit,median,least,greatest,runs\n";
  for (const Quantity& quantity : quantities) {
    const std::string words = quantity.name + quantity.unit;
    ROUNDHOUSE_CHECK(words.find_first_of(",\"\n") == std::string::npos)
        << words;
    absl::StrAppend(&text, Row(quantity, ","), "\n");
  }
  return text;
}

}  // namespace roundhouse::bench
