#include "server/spec/hub_cache.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/files/open_limit.h"
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
constexpr char kSnapshots[] = "snapshots";

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

// "models--ORG--NAME".
std::string FolderOf(const std::string& id) {
  return absl::StrCat(kModelPrefix, absl::StrReplaceAll(id, {{"/", "--"}}));
}

// "" where the folder is none of a model.
std::string IdOfFolder(const std::string& folder) {
  if (!absl::StartsWith(folder, kModelPrefix)) return "";
  std::string id = absl::StrReplaceAll(folder.substr(sizeof(kModelPrefix) - 1),
                                       {{"--", "/"}});
  return HubCache::IsId(id) ? id : "";
}

std::string DownloadCommand(const HubName& name, HubNeed need,
                            const std::string& cache) {
  const std::string revision =
      name.revision.empty() ? "" : absl::StrCat(" --revision ", name.revision);
  return absl::StrCat("hf download ", name.id,
                      need == HubNeed::kConfig ? " config.json" : "", revision,
                      " --cache-dir ", cache);
}

// Before how an admin gets it there: what a member may do.
std::string PullHint(const HubName& name, HubNeed need) {
  if (need == HubNeed::kConfig) return ", ";
  return absl::StrCat(": roundhouse model pull ", name.id,
                      name.revision.empty() ? "" : "@", name.revision,
                      " fetches it where there is a hub, else ");
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
    std::string id = IdOfFolder(entry->path().filename().string());
    if (!id.empty()) ids.push_back(std::move(id));
  }
  std::sort(ids.begin(), ids.end());
  ids.resize(std::min(ids.size(), limit));
  return ids;
}

bool HubCache::Contains(const std::string& path) const {
  return LiesIn(directory_, path) ||
         LiesIn(RealPathWithinLimit(directory_), path);
}

std::optional<HubName> HubCache::ParseName(const std::string& name) {
  HubName out{.id = name.substr(0, name.find('@'))};
  if (!IsId(out.id)) return std::nullopt;
  if (out.id.size() == name.size()) return out;
  out.revision = name.substr(out.id.size() + 1);
  if (!IsWord(out.revision)) return std::nullopt;
  return out;
}

std::optional<HubName> HubCache::NameOf(const std::string& path) const {
  for (const std::string& cache :
       {directory_, RealPathWithinLimit(directory_)}) {
    if (!LiesIn(cache, path)) continue;
    const std::vector<std::string> words =
        absl::StrSplit(path.substr(cache.size()), '/', absl::SkipEmpty());
    if (words.size() != 3 || words[1] != kSnapshots) continue;
    const std::string id = IdOfFolder(words[0]);
    if (!id.empty() && IsWord(words[2])) return HubName{id, words[2]};
  }
  return std::nullopt;
}

absl::StatusOr<std::string> HubCache::Find(
    const std::string& field, const HubName& name, HubNeed need,
    const std::function<bool(const std::string& folder)>& sees) const {
  if (directory_.empty()) {
    return RequestError(FieldReason::kPathNotFound, field,
                        "the server has no Hugging Face cache (--hf-cache)");
  }
  const auto missing = [&](const std::string& what) {
    return RequestError(
        FieldReason::kPathNotFound, field,
        absl::StrCat("the Hugging Face cache ", directory_, " lacks ", what,
                     "; the server downloads nothing by itself",
                     PullHint(name, need),
                     "get it on the server, as the "
                     "daemon's user: ",
                     DownloadCommand(name, need, directory_)));
  };
  const std::string folder = FolderOf(name.id);
  const auto cache = DataRoots::Create({.roots = {directory_}});
  if (absl::IsUnavailable(cache.status())) return cache.status();
  if (!cache.ok()) return missing("it");
  const auto there =
      (*cache)->Resolve(field, folder, PathKind::kDirectory, UsesEveryRoot);
  if (absl::IsUnavailable(there.status())) return there.status();
  if (!there.ok() || !sees(*there)) return missing("it");
  const std::string branch = name.revision.empty() ? "main" : name.revision;
  const std::string ref = absl::StrCat(folder, "/refs/", branch);
  std::string commit = name.revision;
  if (const auto file =
          (*cache)->Resolve(field, ref, PathKind::kFile, UsesEveryRoot);
      file.ok()) {
    ASSIGN_OR_RETURN(const std::string text,
                     ReadWholeFile(**cache, *file, kMaxRefBytes));
    commit = std::string(absl::StripAsciiWhitespace(text));
    if (!IsWord(commit)) return missing(absl::StrCat("a commit in ", ref));
  }
  if (commit.empty()) return missing(ref);
  const std::string snapshot =
      absl::StrCat(folder, "/", kSnapshots, "/", commit);
  const auto path =
      (*cache)->Resolve(field, snapshot, PathKind::kDirectory, UsesEveryRoot);
  if (absl::IsUnavailable(path.status())) return path.status();
  if (!path.ok()) return missing(snapshot);
  const absl::Status status = CheckSnapshot(*path, need);
  if (status.ok()) return *path;
  if (absl::IsUnavailable(status)) return status;
  if (absl::IsNotFound(status)) return missing(std::string(status.message()));
  return FieldError(FieldReason::kPathOutsideDataRoots, field,
                    std::string(status.message()));
}

absl::StatusOr<std::string> HubCache::Resolve(const std::string& field,
                                              const std::string& path,
                                              HubNeed need) const {
  ASSIGN_OR_RETURN(const auto cache,
                   DataRoots::Create({.roots = {directory_}}));
  ASSIGN_OR_RETURN(
      const std::string found,
      cache->Resolve(field, path, PathKind::kDirectory, UsesEveryRoot));
  const absl::Status status = CheckSnapshot(found, need);
  if (status.ok()) return found;
  if (absl::IsUnavailable(status)) return status;
  if (absl::IsNotFound(status)) {
    return FieldError(FieldReason::kPathNotFound, field,
                      absl::StrCat("the Hugging Face cache ", directory_,
                                   " lacks ", std::string(status.message())));
  }
  return FieldError(FieldReason::kPathOutsideDataRoots, field,
                    std::string(status.message()));
}

absl::Status HubCache::CheckSnapshot(const std::string& path,
                                     HubNeed need) const {
  if (need == HubNeed::kConfig) return CheckFile(path + "/config.json");
  std::error_code error;
  for (auto entry = fs::directory_iterator(path, error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    RETURN_IF_ERROR(CheckFile(entry->path().string()));
  }
  if (!error) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", error.message()));
}

absl::Status HubCache::CheckFile(const std::string& path) const {
  const std::string real = RealPathWithinLimit(path);
  if (real.empty() && errno == kOpenHangs) {
    return absl::UnavailableError(
        absl::StrCat(path, ": ", OpenErrorText(errno)));
  }
  const std::string cache = RealPathWithinLimit(directory_);
  if (LiesIn(cache, real)) return absl::OkStatus();
  if (!real.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": leads out of the cache ", directory_));
  }
  std::error_code error;
  const bool link = fs::is_symlink(fs::symlink_status(path, error));
  return absl::NotFoundError(absl::StrCat(
      LiesIn(cache, path) ? path.substr(cache.size() + 1) : path,
      link ? " (a link to nothing: its download has not ended)" : ""));
}

}  // namespace roundhouse
