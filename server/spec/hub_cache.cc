#include "server/spec/hub_cache.h"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/model/input_file.h"
#include "base/status.h"
#include "server/spec/paths.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxWordBytes = 96;
constexpr uint64_t kMaxRefBytes = 256;
constexpr char kModelPrefix[] = "models--";

bool IsWord(const std::string& word) {
  return !word.empty() && word.size() <= kMaxWordBytes && word[0] != '.' &&
         word[0] != '-' && !absl::StrContains(word, "--") &&
         !absl::StrContains(word, "..") &&
         std::all_of(word.begin(), word.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.';
         });
}

bool LiesIn(const std::string& directory, const std::string& path) {
  return !directory.empty() && absl::StartsWith(path + "/", directory + "/");
}

std::string RealPath(const std::string& path) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  return error ? "" : real.string();
}

}  // namespace

bool HubCache::IsId(const std::string& name) {
  const std::vector<std::string> words = absl::StrSplit(name, '/');
  return words.size() == 2 && std::all_of(words.begin(), words.end(), IsWord);
}

std::vector<std::string> HubCache::Ids(size_t limit) const {
  std::vector<std::string> ids;
  std::error_code error;
  for (auto entry = fs::directory_iterator(directory_, error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!absl::StartsWith(name, kModelPrefix)) continue;
    std::string id = absl::StrReplaceAll(name.substr(sizeof(kModelPrefix) - 1),
                                         {{"--", "/"}});
    if (IsId(id)) ids.push_back(std::move(id));
  }
  std::sort(ids.begin(), ids.end());
  ids.resize(std::min(ids.size(), limit));
  return ids;
}

bool HubCache::Contains(const std::string& path) const {
  return LiesIn(directory_, path) || LiesIn(RealPath(directory_), path);
}

absl::StatusOr<std::string> HubCache::Find(const std::string& field,
                                           const std::string& id) const {
  const auto missing = [&](const std::string& what) {
    return FieldError(
        "PATH_NOT_FOUND", field,
        absl::StrCat("no model of the Hugging Face cache ", directory_, ": ",
                     what, " is not there; nothing is downloaded here, get it ",
                     "with: hf download ", id, " --cache-dir ", directory_));
  };
  if (directory_.empty()) {
    return FieldError("PATH_NOT_FOUND", field,
                      "the server has no Hugging Face cache (--hf-cache)");
  }
  const std::vector<std::string> words = absl::StrSplit(id, '/');
  const std::string folder = kModelPrefix + absl::StrJoin(words, "--");
  const auto cache = DataRoots::Create({.roots = {directory_}});
  if (!cache.ok()) return missing("the cache");
  const auto ref =
      (*cache)->Resolve(field, folder + "/refs/main", PathKind::kFile);
  if (!ref.ok()) return missing(folder + "/refs/main");
  ASSIGN_OR_RETURN(const std::string text,
                   ReadWholeFile(**cache, *ref, kMaxRefBytes));
  const std::string revision(absl::StripAsciiWhitespace(text));
  if (!IsWord(revision)) {
    return missing(absl::StrCat("a revision in ", *ref));
  }
  const auto snapshot =
      (*cache)->Resolve(field, absl::StrCat(folder, "/snapshots/", revision),
                        PathKind::kDirectory);
  if (!snapshot.ok()) {
    return missing(absl::StrCat(folder, "/snapshots/", revision));
  }
  return Resolve(field, *snapshot);
}

absl::StatusOr<std::string> HubCache::Resolve(const std::string& field,
                                              const std::string& path) const {
  ASSIGN_OR_RETURN(const auto cache,
                   DataRoots::Create({.roots = {directory_}}));
  ASSIGN_OR_RETURN(const std::string found,
                   cache->Resolve(field, path, PathKind::kDirectory));
  const absl::Status status = CheckSnapshot(found);
  if (status.ok()) return found;
  return FieldError("PATH_OUTSIDE_DATA_ROOTS", field,
                    absl::StrCat(field, ": ", std::string(status.message())));
}

absl::Status HubCache::CheckSnapshot(const std::string& path) const {
  std::error_code error;
  for (auto entry = fs::directory_iterator(path, error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    RETURN_IF_ERROR(CheckFile(entry->path().string()));
  }
  if (!error) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", error.message()));
}

absl::Status HubCache::CheckFile(const std::string& path) const {
  const std::string real = RealPath(path);
  if (LiesIn(RealPath(directory_), real)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      real.empty()
          ? absl::StrCat(path, ": a link to nothing; the download is not whole")
          : absl::StrCat(path, ": leads out of the cache ", directory_));
}

}  // namespace roundhouse
