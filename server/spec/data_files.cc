#include "server/spec/data_files.h"

#include <fnmatch.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

constexpr char kWildcards[] = "*?[";
constexpr const char* kSuffixes[] = {".jsonl",   ".ndjson", ".json",
                                     ".parquet", ".csv",    ".tsv"};
constexpr const char* kPackedSuffixes[] = {".gz", ".zst", ".zstd"};
// What lies beside data and is none.
constexpr const char* kOtherNames[] = {"dataset_info.json",
                                       "dataset_infos.json", "state.json",
                                       "dataset_dict.json"};

absl::Status Invalid(const std::string& field, const std::string& name,
                     const std::string& what) {
  return FieldError(FieldReason::kInvalidValue, field,
                    absl::StrCat("\"", name, "\" ", what));
}

// A pattern or path in two: "a/b*" -> "a", "b*".
std::pair<std::string, std::string> SplitPath(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {".", path};
  return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

// Whether the server's uploads have it, as "STATE/uploads/versions/ID/NAME".
// Of those equal contents are one file on disk, under each name they came by.
bool IsUploaded(const std::string& path) {
  static constexpr char kVersions[] = "/uploads/versions/";
  static constexpr size_t kIdDigits = 32;
  const size_t at = path.find(kVersions);
  if (at == std::string::npos) return false;
  const std::string rest = path.substr(at + sizeof(kVersions) - 1);
  return rest.size() > kIdDigits && rest[kIdDigits] == '/' &&
         std::all_of(rest.begin(), rest.begin() + kIdDigits,
                     [](unsigned char c) { return absl::ascii_isxdigit(c); });
}

bool HasWildcard(const std::string& path) {
  return path.find_first_of(kWildcards) != std::string::npos;
}

bool IsData(const std::string& name) {
  const std::string lower = absl::AsciiStrToLower(name);
  if (lower.empty() || lower[0] == '.' || lower[0] == '_') return false;
  for (const char* other : kOtherNames) {
    if (lower == other) return false;
  }
  absl::string_view bare = lower;
  for (const char* packed : kPackedSuffixes) {
    if (absl::ConsumeSuffix(&bare, packed)) break;
  }
  return std::any_of(
      std::begin(kSuffixes), std::end(kSuffixes),
      [&](const char* suffix) { return absl::EndsWith(bare, suffix); });
}

struct SplitWord {
  std::string split;  // "": the name says none, or several
  std::string word;   // as the name has it
  size_t at = 0;      // in the name
};

// The split that a word of the file's name says: "alpaca_test.jsonl" -> "test".
// Words are runs of letters.
SplitWord SplitOf(const std::string& name) {
  static const auto* const words = new std::map<std::string, std::string>{
      {"train", "train"},      {"training", "train"},
      {"test", "test"},        {"validation", "validation"},
      {"valid", "validation"}, {"val", "validation"},
      {"dev", "validation"},   {"eval", "validation"}};
  SplitWord out;
  for (size_t at = 0; at < name.size();) {
    size_t end = at;
    while (end < name.size() && absl::ascii_isalpha(name[end])) ++end;
    const std::string word = name.substr(at, end - at);
    const auto found = words->find(absl::AsciiStrToLower(word));
    if (found != words->end()) {
      if (!out.split.empty() && out.split != found->second) return {};
      if (out.split.empty()) out = {found->second, word, at};
    }
    at = end + 1;
  }
  return out;
}

// What names the files of one split among others.
std::string Example(const std::string& file) {
  const SplitWord split = SplitOf(file);
  if (split.split.empty()) return file;
  return absl::StrCat(split.at == 0 ? "" : "*", split.word, "*");
}

// Files beside those of the train split may be more of it; beside those of
// others they are what is trained, and the others are not.
//
// `name` is what was given, `prefix` what stands before a file's name there.
absl::Status CheckOneSplit(const std::string& field, const std::string& name,
                           const std::string& prefix,
                           const std::vector<std::string>& files) {
  std::map<std::string, std::string> first;  // of each split
  for (const std::string& file : files) {
    first.emplace(SplitOf(file).split, file);
  }
  if (first.contains("train")) first.erase("");
  if (first.size() < 2) return absl::OkStatus();
  std::vector<std::string> found;
  for (const auto& [split, file] : first) {
    found.push_back(absl::StrCat(split.empty() ? "none" : split, ": ", file));
  }
  const auto train = first.find("train");
  const std::string& meant =
      train == first.end() ? first.begin()->second : train->second;
  return Invalid(
      field, name,
      absl::StrCat("has files of several splits (", absl::StrJoin(found, ", "),
                   "); name those that are meant, for instance ", prefix,
                   Example(meant), ", or each file"));
}

bool Holds(const std::vector<std::string>& names, const char* name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

class Finder {
 public:
  Finder(const PathResolver& resolve, const FileOpener& files,
         const std::string& field)
      : resolve_(resolve), files_(files), field_(field) {}

  absl::Status Add(const std::string& name) {
    auto file = resolve_(field_, name, PathKind::kFile);
    if (file.ok()) return Take(name, *std::move(file));
    if (absl::IsUnavailable(file.status())) return file.status();
    const auto [folder, last] = SplitPath(name);
    if (HasWildcard(folder)) {
      const auto real = resolve_(field_, folder, PathKind::kDirectory);
      if (absl::IsUnavailable(real.status())) return real.status();
      if (!real.ok()) {
        return Invalid(field_, name,
                       "has a pattern in a folder's name; only the last part "
                       "of a path may be one");
      }
    }
    if (HasWildcard(last)) return AddMatches(name, folder, last);
    const auto directory = resolve_(field_, name, PathKind::kDirectory);
    return directory.ok() ? AddFolder(name, *directory) : file.status();
  }

  absl::StatusOr<std::vector<std::string>> Found() && {
    size_t bytes = 0;
    for (const std::string& file : found_) bytes += file.size();
    if (found_.size() > kMaxDataFiles) {
      return FieldError(FieldReason::kInvalidValue, field_,
                        absl::StrCat(found_.size(), " files; at most ",
                                     kMaxDataFiles, ": write them into fewer"));
    }
    if (bytes > kMaxDataNamesBytes) {
      return FieldError(
          FieldReason::kInvalidValue, field_,
          absl::StrCat("the names of its files have ", bytes,
                       " bytes together; at most ", kMaxDataNamesBytes));
    }
    return std::move(found_);
  }

 private:
  absl::StatusOr<std::vector<std::string>> List(const std::string& name,
                                                const std::string& real) {
    const auto folder = files_.OpenDirectory(real);
    if (absl::IsUnavailable(folder.status())) return folder.status();
    if (!folder.ok()) {
      return FieldError(FieldReason::kInvalidValue, field_,
                        std::string(folder.status().message()));
    }
    auto names = NamesIn(*folder);
    if (!names.ok()) {
      return Invalid(field_, name, std::string(names.status().message()));
    }
    std::sort(names->begin(), names->end(), ComesBefore);
    return names;
  }

  absl::Status AddMatches(const std::string& name, const std::string& folder,
                          const std::string& pattern) {
    ASSIGN_OR_RETURN(const std::string real,
                     resolve_(field_, folder, PathKind::kDirectory));
    ASSIGN_OR_RETURN(std::vector<std::string> names, List(name, real));
    std::erase_if(names, [&](const std::string& one) {
      return fnmatch(pattern.c_str(), one.c_str(), FNM_PERIOD) != 0;
    });
    const std::string prefix = name.substr(0, name.size() - pattern.size());
    RETURN_IF_ERROR(CheckOneSplit(field_, name, prefix, names));
    for (const std::string& one : names) {
      RETURN_IF_ERROR(AddBelow(real, one));
    }
    if (!names.empty()) return absl::OkStatus();
    return FieldError(FieldReason::kPathNotFound, field_,
                      absl::StrCat("\"", name, "\" matches no file in ", real));
  }

  absl::Status AddFolder(const std::string& name, const std::string& real) {
    ASSIGN_OR_RETURN(std::vector<std::string> names, List(name, real));
    const bool arrow = std::any_of(
        names.begin(), names.end(),
        [](const std::string& one) { return absl::EndsWith(one, ".arrow"); });
    if (Holds(names, "config.json") &&
        (Holds(names, "tokenizer.json") || Holds(names, "model.safetensors") ||
         Holds(names, "model.safetensors.index.json"))) {
      return Invalid(field_, name,
                     "is a model's folder (config.json); name the data");
    }
    std::erase_if(names, [](const std::string& one) { return !IsData(one); });
    if (names.empty()) {
      return Invalid(
          field_, name,
          arrow
              ? "is a folder of the datasets library; write it as Parquet: "
                "datasets.load_from_disk(FOLDER).to_parquet(FILE)"
              : absl::StrCat("has no file whose name ends with ",
                             absl::StrJoin(kSuffixes, ", "), " (or so with ",
                             absl::StrJoin(kPackedSuffixes, ", "), " behind)"));
    }
    const std::string prefix = absl::EndsWith(name, "/") ? name : name + "/";
    RETURN_IF_ERROR(CheckOneSplit(field_, name, prefix, names));
    for (const std::string& one : names) {
      RETURN_IF_ERROR(AddBelow(real, one));
    }
    return absl::OkStatus();
  }

  absl::Status AddBelow(const std::string& folder, const std::string& name) {
    const std::string path =
        absl::StrCat(folder, folder == "/" ? "" : "/", name);
    ASSIGN_OR_RETURN(std::string found,
                     resolve_(field_, path, PathKind::kFile));
    return Take(path, std::move(found));
  }

  absl::Status Take(const std::string& name, std::string path) {
    if (IsUploaded(path)) {
      if (!uploaded_.insert(path).second) {
        return Invalid(field_, name, "is named twice");
      }
      found_.push_back(std::move(path));
      return absl::OkStatus();
    }
    // One that can't be opened is refused by whoever reads it.
    const auto file = files_.Open(path);
    if (file.ok()) {
      const FileIdentity identity = file->checked().identity;
      if (!seen_.emplace(identity.device, identity.inode).second) {
        return Invalid(field_, name, "is named twice");
      }
    }
    found_.push_back(std::move(path));
    return absl::OkStatus();
  }

  const PathResolver& resolve_;
  const FileOpener& files_;
  const std::string& field_;
  std::vector<std::string> found_;
  std::set<std::pair<uint64_t, uint64_t>> seen_;  // device, inode
  std::set<std::string> uploaded_;
};

// The number that begins at `at`, without its zeros, and what follows it.
std::string TakeNumber(const std::string& text, size_t* at) {
  const size_t start = *at;
  while (*at < text.size() && absl::ascii_isdigit(text[*at])) ++*at;
  const size_t first = std::min(text.find_first_not_of('0', start), *at);
  return text.substr(first, *at - first);
}

}  // namespace

bool ComesBefore(const std::string& a, const std::string& b) {
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (absl::ascii_isdigit(a[i]) && absl::ascii_isdigit(b[j])) {
      const std::string left = TakeNumber(a, &i), right = TakeNumber(b, &j);
      if (left.size() != right.size()) return left.size() < right.size();
      if (left != right) return left < right;
    } else if (a[i] != b[j]) {
      return a[i] < b[j];
    } else {
      ++i;
      ++j;
    }
  }
  if ((i < a.size()) != (j < b.size())) return j < b.size();
  return a < b;  // "a1" and "a01"
}

absl::StatusOr<std::vector<std::string>> FindDataFiles(
    const PathResolver& resolve, const FileOpener& files,
    const std::string& field, const std::vector<std::string>& names) {
  Finder finder(resolve, files, field);
  for (const std::string& name : names) RETURN_IF_ERROR(finder.Add(name));
  return std::move(finder).Found();
}

}  // namespace roundhouse
