#include "server/jobs/tokenizer_copy.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/files/checked_file.h"
#include "base/files/durable_file.h"
#include "base/files/file_site.h"
#include "base/limits.h"
#include "base/model/input_file.h"
#include "base/status.h"
#include "server/weights/checkpoint.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;

// Under a temporary name until all of it is on the disk.
absl::Status MakeCopy(const ModelDirectory& model, const std::string& path) {
  const std::string temporary = TemporaryName(path);
  std::error_code error;
  fs::remove_all(temporary, error);
  RETURN_IF_ERROR(MakeFolderDurably(kJobTokenizer, temporary));
  for (size_t i = 0; i < model.tokenizer.size(); ++i) {
    const CheckedFile& file = model.tokenizer[i];
    ASSIGN_OR_RETURN(const int descriptor, OpenChecked(file));
    const InputFile opened = InputFile::Adopt(Descriptor(descriptor), file);
    ASSIGN_OR_RETURN(const std::string content,
                     ReadWhole(opened, kMaxTokenizerFileBytes));
    RETURN_IF_ERROR(WriteNewFile(
        kJobTokenizer, absl::StrCat(temporary, "/", model.tokenizer_files[i]),
        content));
  }
  RETURN_IF_ERROR(SyncFolder(kJobTokenizer, temporary));
  return RenameDurably(kJobTokenizer, temporary, path, RenameMode::kKeep);
}

std::string ConfigCopy(const std::string& directory) {
  return absl::StrCat(directory, "/model-config.json");
}

absl::StatusOr<std::vector<std::string>> NamesIn(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto entry = fs::directory_iterator(path, error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error) {
    return absl::InternalError(absl::StrCat(path, ": ", error.message()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::string TokenizerCopy(const std::string& directory) {
  return absl::StrCat(directory, "/tokenizer");
}

bool HasTokenizerCopy(const std::string& directory) {
  std::error_code error;
  return fs::is_directory(TokenizerCopy(directory), error);
}

absl::StatusOr<std::vector<std::string>> KeepTokenizer(
    const ModelDirectory& model, const std::string& directory) {
  const std::string path = TokenizerCopy(directory);
  if (!HasTokenizerCopy(directory)) {
    RETURN_IF_ERROR(MakeFolderDurably(kJobTokenizer, directory));
    RETURN_IF_ERROR(WriteFileDurably(kJobTokenizer, ConfigCopy(directory),
                                     model.config_json));
    RETURN_IF_ERROR(MakeCopy(model, path));
  }
  return NamesIn(path);
}

absl::StatusOr<std::vector<GivenFile>> GiveTokenizerCopy(
    const std::string& directory, const std::string& model) {
  const std::string path = TokenizerCopy(directory);
  ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(path));
  std::vector<GivenFile> given;
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(const InputFile file,
                     AnyFiles().Open(absl::StrCat(path, "/", name)));
    given.push_back({absl::StrCat(model, "/", name), file.checked()});
  }
  ASSIGN_OR_RETURN(const InputFile config,
                   AnyFiles().Open(ConfigCopy(directory)));
  given.push_back({absl::StrCat(model, "/config.json"), config.checked()});
  return given;
}

}  // namespace roundhouse
