#include "server/weights/leftovers.h"

#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/files/file_site.h"
#include "base/files/remove_tree.h"
#include "base/log.h"
#include "server/weights/checkpoint.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;
constexpr absl::string_view kEarlierPrefix = "tmp-";
// The last file of an output.
constexpr char kLastFile[] = "trainer_state.json";

std::vector<fs::path> Entries(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (auto entry = fs::directory_iterator(folder, error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    entries.push_back(entry->path());
  }
  return entries;
}

bool IsFolder(const fs::path& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() == fs::file_type::directory;
}

bool IsFile(const fs::path& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() == fs::file_type::regular;
}

void Remove(const fs::path& path) {
  const absl::Status removed = RemoveTree(kLeftoverRemove, path.string());
  if (!removed.ok()) {
    RH_LOG(kWarning) << "what was left stays: " << removed.message();
  } else {
    RH_LOG(kInfo) << "removed what was left of " << path.string();
  }
}

bool IsUnfinished(absl::string_view name) {
  if (name == absl::StrCat(kTemporaryPrefix, "tokenizer")) return true;
  return (absl::ConsumePrefix(&name, kTemporaryPrefix) ||
          absl::ConsumePrefix(&name, kEarlierPrefix)) &&
         CheckpointStepOf(std::string(name)).has_value();
}

}  // namespace

void SweepJobDirectory(const std::string& directory) {
  for (const fs::path& entry : Entries(directory)) {
    const std::string name = entry.filename().string();
    if (IsFolder(entry) && IsUnfinished(name)) Remove(entry);
    if (IsFile(entry) && absl::EndsWith(name, ".tmp")) Remove(entry);
  }
  for (const char* split : {"train", "validation"}) {
    for (const fs::path& entry :
         Entries(fs::path(directory) / "data" / split)) {
      const bool unfinished = absl::EndsWith(entry.string(), ".part");
      if (unfinished && IsFile(entry)) Remove(entry);
    }
  }
}

void SweepJobDirectories(const std::string& jobs) {
  for (const fs::path& entry : Entries(jobs)) {
    if (IsFolder(entry)) SweepJobDirectory(entry.string());
  }
}

void SweepOutputs(const std::string& outputs,
                  const std::function<bool(const std::string& name)>& is_job) {
  for (const fs::path& entry : Entries(outputs)) {
    if (!IsFolder(entry)) continue;
    const std::string name = entry.filename().string();
    if (absl::StartsWith(name, kTemporaryPrefix)) {
      Remove(entry);
      continue;
    }
    absl::string_view made = name;
    if (absl::ConsumePrefix(&made, kEarlierPrefix) && !is_job(name) &&
        is_job(std::string(made)) && !IsFile(entry / kLastFile) &&
        !IsFile(entry / "config.json") &&
        !IsFile(entry / "adapter_config.json")) {
      Remove(entry);
    }
  }
}

}  // namespace roundhouse
