#include "base/upload_names.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "base/visible_text.h"

namespace roundhouse {
namespace {

constexpr size_t kMaxProjectBytes = 32;
constexpr size_t kMaxShownBytes = 80;

std::string Quoted(absl::string_view text) {
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, kMaxShownBytes)),
                      "\"");
}

bool IsNameLetter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' ||
         c == '_' || c == '.';
}

absl::Status BadFileName(absl::string_view name, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("file name ", Quoted(name), " ", why));
}

absl::Status BadReference(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(Quoted(text), ": ", why));
}

// What the prefix says, and `text` without it.
std::optional<UploadKind> TakePrefix(absl::string_view& text) {
  for (const UploadKind kind : {UploadKind::kDataset, UploadKind::kModel}) {
    if (absl::ConsumePrefix(&text, absl::StrCat(UploadKindName(kind), ":"))) {
      return kind;
    }
  }
  return std::nullopt;
}

bool IsProject(absl::string_view name) {
  return !name.empty() && name.size() <= kMaxProjectBytes &&
         absl::ascii_islower(static_cast<unsigned char>(name[0])) &&
         std::all_of(name.begin(), name.end(), IsNameLetter);
}

}  // namespace

const char* UploadKindName(UploadKind kind) {
  return kind == UploadKind::kModel ? "model" : "dataset";
}

absl::Status CheckUploadName(absl::string_view name) {
  const bool fits = !name.empty() && name.size() <= kMaxUploadNameBytes &&
                    absl::ascii_isalnum(static_cast<unsigned char>(name[0])) &&
                    std::all_of(name.begin(), name.end(), IsNameLetter);
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      Quoted(name),
      " is no name: letters, digits, '-', '_' and '.', a letter or digit "
      "first, ",
      kMaxUploadNameBytes, " at most"));
}

std::string UploadNameFrom(absl::string_view file_name) {
  std::string name;
  for (const char c : file_name) name += IsNameLetter(c) ? c : '-';
  const size_t first = static_cast<size_t>(
      std::find_if(name.begin(), name.end(),
                   [](unsigned char c) { return absl::ascii_isalnum(c); }) -
      name.begin());
  return name.substr(std::min(first, name.size()), kMaxUploadNameBytes);
}

absl::Status CheckRelativeName(absl::string_view name) {
  if (name.empty()) return BadFileName(name, "is empty");
  if (name.size() > kMaxRelativeNameBytes) {
    return BadFileName(
        name, absl::StrCat("has more than ", kMaxRelativeNameBytes, " bytes"));
  }
  if (ValidUtf8(std::string(name)) != name) {
    return BadFileName(name, "is not UTF-8");
  }
  if (std::any_of(name.begin(), name.end(), [](unsigned char c) {
        return absl::ascii_iscntrl(c) || c == '\\';
      })) {
    return BadFileName(name, "has a control character or a backslash");
  }
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '/');
  if (parts.size() > kMaxNameParts) {
    return BadFileName(name,
                       absl::StrCat("lies more than ", kMaxNameParts, " deep"));
  }
  for (absl::string_view part : parts) {
    if (part.empty()) return BadFileName(name, "has an empty part");
    if (part[0] == '.') {
      return BadFileName(name, "has a part that begins with a '.'");
    }
    if (part.size() > kMaxNamePartBytes) {
      return BadFileName(name, absl::StrCat("has a part of more than ",
                                            kMaxNamePartBytes, " bytes"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckRelativeNames(const std::vector<std::string>& names) {
  if (names.empty()) return absl::InvalidArgumentError("there are no files");
  if (names.size() > kMaxUploadFiles) {
    return absl::InvalidArgumentError(absl::StrCat(
        names.size(), " files, ", kMaxUploadFiles, " are the most"));
  }
  size_t bytes = 0;
  std::set<absl::string_view> files;
  for (const std::string& name : names) {
    RETURN_IF_ERROR(CheckRelativeName(name));
    bytes += name.size();
    if (!files.insert(name).second) return BadFileName(name, "is there twice");
  }
  if (bytes > kMaxUploadNamesBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the files' names have ", bytes, " bytes in all, ",
                     kMaxUploadNamesBytes, " are the most"));
  }
  for (absl::string_view name : files) {
    for (size_t slash = name.find('/'); slash != absl::string_view::npos;
         slash = name.find('/', slash + 1)) {
      if (!files.contains(name.substr(0, slash))) continue;
      return BadFileName(name.substr(0, slash), "is a file and a folder");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<UploadReference>> ParseUploadReference(
    absl::string_view text) {
  const absl::string_view whole = text;
  const std::optional<UploadKind> kind = TakePrefix(text);
  if (!kind.has_value()) return std::optional<UploadReference>();
  UploadReference reference{.kind = *kind};
  const size_t at = text.find('@');
  if (at != absl::string_view::npos) {
    const absl::string_view version = text.substr(at + 1);
    if (!absl::SimpleAtoi(version, &reference.version) ||
        reference.version < 1 || absl::StrCat(reference.version) != version) {
      return BadReference(whole, "behind '@' stands a version, from 1");
    }
    text = text.substr(0, at);
  }
  const size_t slash = text.find('/');
  if (slash != absl::string_view::npos) {
    reference.project = std::string(text.substr(0, slash));
    if (!IsProject(reference.project)) {
      return BadReference(whole, "before '/' stands a project");
    }
    text = text.substr(slash + 1);
  }
  const absl::Status named = CheckUploadName(text);
  if (!named.ok()) return BadReference(whole, named.message());
  reference.name = std::string(text);
  return std::optional<UploadReference>(std::move(reference));
}

std::string ToText(const UploadReference& reference) {
  return absl::StrCat(
      UploadKindName(reference.kind), ":", reference.project,
      reference.project.empty() ? "" : "/", reference.name,
      reference.version == 0 ? "" : absl::StrCat("@", reference.version));
}

}  // namespace roundhouse
