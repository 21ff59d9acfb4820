#include "tests/bench/table.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

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

// In quotes where it must be (RFC 4180).
std::string CsvField(std::string text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
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
  for (Quantity quantity : quantities) {
    quantity.name = CsvField(std::move(quantity.name));
    quantity.unit = CsvField(std::move(quantity.unit));
    absl::StrAppend(&text, Row(quantity, ","), "\n");
  }
  return text;
}

}  // namespace roundhouse::bench
