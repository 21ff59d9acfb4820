#include "server/jobs/tokenizer_copy.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/files/checked_file.h"
#include "base/limits.h"
#include "base/model/input_file.h"
#include "base/status.h"
#include "server/weights/checkpoint.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;

std::string NameOf(const CheckedFile& file) {
  return fs::path(file.path).filename().string();
}

absl::Status MakeCopy(const ModelDirectory& model, const std::string& path) {
  DirectoryPlan plan;
  plan.final_path = path;
  plan.sites = {kJobTokenizer, kJobTokenizer, kJobTokenizer};
  const auto& names = model.tokenizer_files;
  for (const CheckedFile& file : model.files) {
    const std::string name = NameOf(file);
    if (std::count(names.begin(), names.end(), name) == 0) continue;
    ASSIGN_OR_RETURN(const int descriptor, OpenChecked(file));
    const InputFile opened = InputFile::Adopt(Descriptor(descriptor), file);
    ASSIGN_OR_RETURN(plan.texts[name],
                     ReadWhole(opened, kMaxTokenizerFileBytes));
  }
  absl::Status status = BeginDirectory(plan);
  if (status.ok()) status = FinishDirectory(plan);
  if (!status.ok()) AbandonDirectory(plan);
  return status;
}

}  // namespace

std::string TokenizerCopy(const std::string& directory) {
  return absl::StrCat(directory, "/tokenizer");
}

absl::StatusOr<std::vector<std::string>> KeepTokenizer(
    const ModelDirectory& model, const std::string& directory) {
  const std::string path = TokenizerCopy(directory);
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    RETURN_IF_ERROR(MakeCopy(model, path));
  }
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    names.push_back(entry.path().filename().string());
  }
  if (error) {
    return absl::InternalError(absl::StrCat(path, ": ", error.message()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace roundhouse
