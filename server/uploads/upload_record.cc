#include "server/uploads/upload_record.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace roundhouse {
namespace {

constexpr size_t kSha256Digits = 64;
constexpr char kNoHash[] = "-";

bool IsSha256(absl::string_view text) {
  return text.size() == kSha256Digits &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f');
         });
}

// "HASH BYTES NAME".
absl::StatusOr<UploadedFile> ParseLine(absl::string_view line) {
  const std::vector<absl::string_view> parts =
      absl::StrSplit(line, absl::MaxSplits(' ', 2));
  UploadedFile file;
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[1], &file.bytes)) {
    return absl::DataLossError(absl::StrCat(
        "manifest: \"", absl::CHexEscape(line.substr(0, 80)), "\" is no line"));
  }
  if (parts[0] != kNoHash) file.sha256 = std::string(parts[0]);
  file.name = std::string(parts[2]);
  return file;
}

}  // namespace

uint64_t UploadRecord::total_bytes() const {
  uint64_t bytes = 0;
  for (const UploadedFile& file : *files) bytes += file.bytes;
  return bytes;
}

std::string UploadRecord::reference() const {
  return ToText({.kind = kind, .name = name, .version = version});
}

absl::Status CheckFiles(const UploadedFiles& files) {
  std::vector<std::string> names;
  names.reserve(files.size());
  for (const UploadedFile& file : files) names.push_back(file.name);
  RETURN_IF_ERROR(CheckRelativeNames(names));
  for (const UploadedFile& file : files) {
    if (file.bytes > kMaxUploadedFileBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.name, ": ", file.bytes, " bytes, ",
                       kMaxUploadedFileBytes, " are the most"));
    }
    if (!file.sha256.empty() && !IsSha256(file.sha256)) {
      return absl::InvalidArgumentError(absl::StrCat(
          file.name, ": sha256 is ", kSha256Digits, " digits of 0-9 and a-f"));
    }
  }
  return absl::OkStatus();
}

uint64_t CountedBytes(const UploadedFiles& files) {
  uint64_t bytes = 0;
  for (const UploadedFile& file : files) {
    bytes += std::max(file.bytes, kMinFileBytes);
  }
  return bytes;
}

std::string ManifestText(const UploadedFiles& files) {
  std::string text;
  for (const UploadedFile& file : files) {
    absl::StrAppend(&text, file.sha256.empty() ? kNoHash : file.sha256, " ",
                    file.bytes, " ", file.name, "\n");
  }
  return text;
}

absl::StatusOr<UploadedFiles> ParseManifest(absl::string_view text) {
  UploadedFiles files;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    ASSIGN_OR_RETURN(UploadedFile file, ParseLine(line));
    files.push_back(std::move(file));
  }
  const absl::Status sound = CheckFiles(files);
  if (sound.ok()) return files;
  return absl::DataLossError(absl::StrCat("manifest: ", sound.message()));
}

}  // namespace roundhouse
