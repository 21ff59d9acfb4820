#include "client/dataset_output.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/output.h"

namespace roundhouse::client {
namespace {

constexpr char kTrainedColor[] = "\x1b[32m";
constexpr char kNoColor[] = "\x1b[0m";

struct Character {
  uint32_t code = 0;
  size_t bytes = 0;  // 0: not UTF-8
};

size_t LengthByLead(unsigned char lead) {
  return lead < 0x80             ? 1
         : (lead & 0xe0) == 0xc0 ? 2
         : (lead & 0xf0) == 0xe0 ? 3
         : (lead & 0xf8) == 0xf0 ? 4
                                 : 0;
}

// The character at `at`.
Character Decode(const std::string& text, size_t at) {
  static constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const auto lead = static_cast<unsigned char>(text[at]);
  const size_t bytes = LengthByLead(lead);
  if (bytes == 0 || at + bytes > text.size()) return {};
  uint32_t code = bytes == 1 ? lead : lead & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    const auto next = static_cast<unsigned char>(text[at + i]);
    if ((next & 0xc0) != 0x80) return {};
    code = code << 6 | (next & 0x3f);
  }
  // A longer form than needed may hide a control character.
  return code < kLeast[bytes] ? Character{} : Character{code, bytes};
}

bool IsControl(uint32_t code) {
  return (code < 0x20 && code != '\n' && code != '\t') ||
         (code >= 0x7f && code < 0xa0);
}

// Marks, embeddings, overrides and isolates of direction, and the two
// characters that end lines.
bool TurnsWriting(uint32_t code) {
  return code == 0x61c || code == 0x200e || code == 0x200f ||
         (code >= 0x2028 && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069);
}

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
      {"format:", VisibleText(response.format())},
      {"rows:", absl::StrCat(response.rows())},
      {"sequences:", absl::StrCat(response.sequences())},
      {"tokens:", absl::StrCat(response.tokens())},
      {"trained tokens:", absl::StrCat(response.target_tokens())},
      {"longest:", absl::StrCat(response.max_sequence_tokens(), " tokens")}};
  if (response.has_packed_rows()) {
    rows.push_back(
        {"packed rows:", absl::StrCat(response.packed_rows(), ", the longest ",
                                      response.max_row_tokens(), " tokens")});
  }
  rows.push_back(
      {"truncated:",
       absl::StrCat(response.truncated(), LinesText(response.truncated_lines(),
                                                    response.truncated()))});
  return rows;
}

std::string SpanText(const v1::DatasetSpan& span, bool color) {
  const std::string text = VisibleText(span.text());
  if (!span.trained()) return text;
  return color ? absl::StrCat(kTrainedColor, text, kNoColor)
               : absl::StrCat("[[", text, "]]");
}

}  // namespace

std::string VisibleText(const std::string& text) {
  std::string visible;
  for (size_t at = 0; at < text.size();) {
    const Character next = Decode(text, at);
    if (next.bytes == 0 || (next.bytes == 1 && IsControl(next.code))) {
      absl::StrAppendFormat(&visible, "\\x%02x",
                            static_cast<unsigned char>(text[at]));
    } else if (IsControl(next.code) || TurnsWriting(next.code)) {
      absl::StrAppendFormat(&visible, "\\u%04x", next.code);
    } else {
      visible.append(text, at, next.bytes);
    }
    at += next.bytes == 0 ? 1 : next.bytes;
  }
  return visible;
}

std::string ValidationText(const v1::ValidateDatasetResponse& response) {
  std::vector<std::vector<std::string>> rows = CountRows(response);
  for (const v1::DatasetRows& dropped : response.dropped()) {
    rows.push_back(
        {"dropped:",
         absl::StrCat(dropped.rows(), " ", VisibleText(dropped.reason()),
                      LinesText(dropped.lines(), dropped.rows()))});
  }
  if (response.dropped().empty()) rows.push_back({"dropped:", "0"});
  for (const v1::IgnoredField& field : response.ignored_fields()) {
    rows.push_back(
        {"ignored field:", absl::StrCat(VisibleText(field.name()), " in ",
                                        field.rows(), " rows")});
  }
  for (const v1::DatasetWarning& warning : response.warnings()) {
    rows.push_back(
        {"warning:", absl::StrCat(VisibleText(warning.message()),
                                  LinesText(warning.lines(), warning.rows()))});
  }
  return FormatTable(rows);
}

std::string PreviewText(const v1::PreviewDatasetResponse& response,
                        bool color) {
  std::string text;
  for (const v1::DatasetSample& sample : response.samples()) {
    absl::StrAppend(&text, text.empty() ? "" : "\n", "--- line ", sample.line(),
                    ": ", sample.tokens(), " tokens, ", sample.target_tokens(),
                    " trained\n");
    for (const v1::DatasetSpan& span : sample.spans()) {
      absl::StrAppend(&text, SpanText(span, color));
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

}  // namespace roundhouse::client
