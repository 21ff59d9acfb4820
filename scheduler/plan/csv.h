// Plain comma-separated text with a line of column names: no quotes, no
// escapes.  Every error names file and line.
//
// Pure; thread-compatible.
#ifndef ROUNDHOUSE_SCHEDULER_PLAN_CSV_H_
#define ROUNDHOUSE_SCHEDULER_PLAN_CSV_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace roundhouse {

class CsvRow {
 public:
  // The columns of a row are shared with its table.
  CsvRow(std::string where, std::shared_ptr<const std::vector<std::string>>,
         std::vector<std::string> cells);

  // INVALID_ARGUMENT when the file has no such column.
  absl::StatusOr<std::string> Cell(absl::string_view column) const;
  // INVALID_ARGUMENT "FILE:LINE: MESSAGE".
  absl::Status Error(absl::string_view message) const;

 private:
  std::string where_;
  // Shared because rows outlive the table that they are read from.
  std::shared_ptr<const std::vector<std::string>> columns_;
  std::vector<std::string> cells_;
};

// Empty lines and lines that begin with '#' are skipped, spaces around a cell
// dropped.  INVALID_ARGUMENT for a row with more or fewer cells than columns, a
// column named twice, no row at all, or more than `max_rows`.
absl::StatusOr<std::vector<CsvRow>> ParseCsv(absl::string_view file,
                                             absl::string_view text,
                                             int max_rows);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_PLAN_CSV_H_
