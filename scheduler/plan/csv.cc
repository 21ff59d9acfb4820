#include "scheduler/plan/csv.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace roundhouse {
namespace {

using Columns = std::vector<std::string>;

std::vector<std::string> Cells(absl::string_view line) {
  std::vector<std::string> cells;
  for (const absl::string_view cell : absl::StrSplit(line, ',')) {
    cells.emplace_back(absl::StripAsciiWhitespace(cell));
  }
  return cells;
}

absl::Status CheckColumns(const std::string& where, const Columns& columns) {
  for (auto name = columns.begin(); name != columns.end(); ++name) {
    if (std::find(columns.begin(), name, *name) != name) {
      return absl::InvalidArgumentError(absl::StrCat(
          where, ": column \"", *name, "\" is there a second time"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

CsvRow::CsvRow(std::string where, std::shared_ptr<const Columns> columns,
               std::vector<std::string> cells)
    : where_(std::move(where)),
      columns_(std::move(columns)),
      cells_(std::move(cells)) {}

absl::StatusOr<std::string> CsvRow::Cell(absl::string_view column) const {
  const auto found = std::find(columns_->begin(), columns_->end(), column);
  if (found == columns_->end()) {
    return Error(absl::StrCat("there is no column \"", column, "\""));
  }
  return cells_[found - columns_->begin()];
}

absl::Status CsvRow::Error(absl::string_view message) const {
  return absl::InvalidArgumentError(absl::StrCat(where_, ": ", message));
}

absl::StatusOr<std::vector<CsvRow>> ParseCsv(absl::string_view file,
                                             absl::string_view text,
                                             int max_rows) {
  std::shared_ptr<const Columns> columns;
  std::vector<CsvRow> rows;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    const absl::string_view content = absl::StripAsciiWhitespace(line);
    if (content.empty() || content.front() == '#') continue;
    const std::string where = absl::StrCat(file, ":", number);
    std::vector<std::string> cells = Cells(content);
    if (columns == nullptr) {
      RETURN_IF_ERROR(CheckColumns(where, cells));
      columns = std::make_shared<const Columns>(std::move(cells));
      continue;
    }
    if (cells.size() != columns->size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": ", cells.size(), " cells, but the header has ",
                       columns->size()));
    }
    if (static_cast<int>(rows.size()) == max_rows) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": more than ", max_rows, " rows"));
    }
    rows.emplace_back(where, columns, std::move(cells));
  }
  if (rows.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": no rows"));
  }
  return rows;
}

}  // namespace roundhouse
