#include "client/tables/dataset_output.h"

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/visible_text.h"
#include "client/output.h"

namespace roundhouse::client {
namespace {

constexpr char kTrainedColor[] = "\x1b[32m";
constexpr char kNoColor[] = "\x1b[0m";

std::string LinesText(const google::protobuf::RepeatedField<int64_t>& lines,
                      int64_t rows) {
  if (lines.empty()) return "";
  return absl::StrCat(lines.size() == 1 ? " (line " : " (lines ",
                      absl::StrJoin(lines, ", "),
                      rows > lines.size() ? ", ..." : "", ")");
}

std::vector<std::vector<std::string>> CountRows(
    const v1::ValidateDatasetResponse& response) {
  std::vector<std::vector<std::string>> rows = {
      {"format:", response.format()},
      {"rows:", absl::StrCat(response.rows())},
      {"sequences:", absl::StrCat(response.sequences())},
      {"tokens:", absl::StrCat(response.tokens())},
      {"trained tokens:", absl::StrCat(response.target_tokens())},
      {"longest:", CountText(response.max_sequence_tokens(), "token")}};
  if (response.has_packed_rows()) {
    rows.push_back(
        {"packed rows:",
         absl::StrCat(response.packed_rows(), ", the longest ",
                      CountText(response.max_row_tokens(), "token"))});
  }
  rows.push_back(
      {"truncated:",
       absl::StrCat(response.truncated(), LinesText(response.truncated_lines(),
                                                    response.truncated()))});
  return rows;
}

std::string PlaceText(const v1::DatasetSample& sample) {
  return sample.place().empty() ? absl::StrCat("line ", sample.line())
                                : VisibleLine(sample.place());
}

std::string SpanText(const v1::DatasetSpan& span, bool color) {
  const std::string text = VisibleText(span.text());
  if (!span.trained()) return text;
  return color ? absl::StrCat(kTrainedColor, text, kNoColor)
               : absl::StrCat("[[", text, "]]");
}

std::string OneReport(const v1::ValidateDatasetResponse& response) {
  std::vector<std::vector<std::string>> rows = CountRows(response);
  for (const v1::DatasetRows& dropped : response.dropped()) {
    rows.push_back(
        {"dropped:", absl::StrCat(dropped.rows(), " ", dropped.reason(),
                                  LinesText(dropped.lines(), dropped.rows()))});
  }
  if (response.dropped().empty()) rows.push_back({"dropped:", "0"});
  for (const v1::IgnoredField& field : response.ignored_fields()) {
    rows.push_back(
        {"ignored field:",
         absl::StrCat(field.name(), " in ", CountText(field.rows(), "row"))});
  }
  for (const v1::DatasetWarning& warning : response.warnings()) {
    rows.push_back(
        {"warning:", absl::StrCat(warning.message(),
                                  LinesText(warning.lines(), warning.rows()))});
  }
  return FormatTable(rows);
}

}  // namespace

std::string ValidationText(const v1::ValidateDatasetResponse& response) {
  std::string text = OneReport(response);
  if (!response.has_held_out()) return text;
  return absl::StrCat(text, "\nheld out, to evaluate on:\n",
                      OneReport(response.held_out()));
}

std::string PreviewText(const v1::PreviewDatasetResponse& response,
                        bool color) {
  std::string text;
  for (const v1::DatasetSample& sample : response.samples()) {
    absl::StrAppend(&text, text.empty() ? "" : "\n", "--- ", PlaceText(sample),
                    ": ", CountText(sample.tokens(), "token"), ", ",
                    sample.target_tokens(), " trained\n");
    for (const v1::DatasetSpan& span : sample.spans()) {
      absl::StrAppend(&text, SpanText(span, color));
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

}  // namespace roundhouse::client
