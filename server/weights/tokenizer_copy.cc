#include "server/weights/tokenizer_copy.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files/checked_file.h"
#include "base/files/durable_file.h"
#include "base/files/file_site.h"
#include "base/files/remove_tree.h"
#include "base/files/sealed_json.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/model/input_file.h"
#include "base/model/json.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "server/weights/checkpoint.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;

// SHA-256 of each file by its name, the configuration's among them.
using Hashes = std::map<std::string, std::string>;

constexpr uint64_t kMaxManifestBytes = 1 << 20;
constexpr const char* kConfigName = "model-config.json";
constexpr char kGenerationConfig[] = "generation_config.json";
constexpr char kEos[] = "eos_token_id";
constexpr JsonLimits kGenerationLimits = {
    .max_bytes = 1 << 20, .max_depth = 32, .max_keys = 1000};

std::string ConfigCopy(const std::string& directory) {
  return absl::StrCat(directory, "/", kConfigName);
}

std::string ManifestPath(const std::string& directory) {
  return absl::StrCat(directory, "/tokenizer-manifest.json");
}

// Adds the names of what is in `path`, each behind `prefix`.
absl::Status AddNames(const std::string& path, const std::string& prefix,
                      std::vector<std::string>* names) {
  std::error_code error;
  for (auto entry = fs::directory_iterator(path, error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    names->push_back(absl::StrCat(prefix, entry->path().filename().string()));
  }
  if (!error) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(path, ": ", error.message()));
}

// The names of files in the copy and in its folder of chat templates.
absl::StatusOr<std::vector<std::string>> NamesIn(const std::string& path) {
  std::vector<std::string> names;
  RETURN_IF_ERROR(AddNames(path, "", &names));
  const std::string templates = absl::StrCat(path, "/", kChatTemplatesFolder);
  std::error_code error;
  if (std::erase(names, kChatTemplatesFolder) > 0 &&
      fs::is_directory(templates, error)) {
    RETURN_IF_ERROR(
        AddNames(templates, absl::StrCat(kChatTemplatesFolder, "/"), &names));
  }
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status WriteCopied(const std::string& folder, const std::string& name,
                         const std::string& content, Hashes* hashes) {
  RETURN_IF_ERROR(
      WriteNewFile(kJobTokenizer, absl::StrCat(folder, "/", name), content));
  (*hashes)[name] = Sha256Of(content);
  return absl::OkStatus();
}

// Under a temporary name until all of it is on the disk.  Answers what was
// copied.
absl::StatusOr<Hashes> CopyAside(const ModelDirectory& model,
                                 const std::vector<int64_t>& turn_ends,
                                 const std::string& temporary) {
  RETURN_IF_ERROR(RemoveTree(kJobTokenizer, temporary));
  RETURN_IF_ERROR(MakeFolderDurably(kJobTokenizer, temporary));
  const std::string templates =
      absl::StrCat(temporary, "/", kChatTemplatesFolder);
  const bool has_templates = std::any_of(
      model.tokenizer_files.begin(), model.tokenizer_files.end(),
      [](const std::string& name) { return absl::StrContains(name, '/'); });
  if (has_templates) {
    RETURN_IF_ERROR(MakeFolderDurably(kJobTokenizer, templates));
  }
  Hashes hashes = {{kConfigName, Sha256Of(model.config_json)}};
  bool named = turn_ends.empty();
  for (size_t i = 0; i < model.tokenizer.size(); ++i) {
    const CheckedFile& file = model.tokenizer[i];
    const std::string& name = model.tokenizer_files[i];
    ASSIGN_OR_RETURN(Descriptor descriptor, OpenChecked(file));
    const InputFile opened = InputFile::Adopt(std::move(descriptor), file);
    ASSIGN_OR_RETURN(std::string content,
                     ReadWhole(opened, kMaxTokenizerFileBytes));
    if (!named && name == kGenerationConfig) {
      content = WithTurnEnds(content, model.config_json, turn_ends);
      named = true;
    }
    RETURN_IF_ERROR(WriteCopied(temporary, name, content, &hashes));
  }
  if (!named) {
    RETURN_IF_ERROR(WriteCopied(temporary, kGenerationConfig,
                                WithTurnEnds("", model.config_json, turn_ends),
                                &hashes));
  }
  if (has_templates) RETURN_IF_ERROR(SyncFolder(kJobTokenizer, templates));
  RETURN_IF_ERROR(SyncFolder(kJobTokenizer, temporary));
  return hashes;
}

// The copy is there last: without it all is made again.
absl::Status Publish(const ModelDirectory& model, const Hashes& hashes,
                     const std::string& directory, const std::string& temporary,
                     RenameMode mode) {
  RETURN_IF_ERROR(WriteFileDurably(kJobTokenizer, ConfigCopy(directory),
                                   model.config_json));
  RETURN_IF_ERROR(WriteFileDurably(
      kJobTokenizer, ManifestPath(directory),
      SealJson(nlohmann::json({{"files", hashes}}).dump() + "\n")));
  return RenameDurably(kJobTokenizer, temporary, TokenizerCopy(directory),
                       mode);
}

// Nothing: a job of an older version made the copy.  DATA_LOSS: damaged.
absl::StatusOr<std::optional<Hashes>> ReadManifest(
    const std::string& directory) {
  const std::string path = ManifestPath(directory);
  const auto text = ReadWholeFile(kJobTokenizer, path, kMaxManifestBytes);
  if (absl::IsNotFound(text.status())) return std::nullopt;
  RETURN_IF_ERROR(text.status());
  try {
    if (CheckSeal(*text) == Seal::kWhole) {
      return nlohmann::json::parse(*text).at("files").get<Hashes>();
    }
  } catch (const nlohmann::json::exception&) {
    // Sealed by somebody else.
  }
  return absl::DataLossError(absl::StrCat(path, ": damaged"));
}

absl::StatusOr<Hashes> HashCopy(const std::string& directory) {
  const std::string path = TokenizerCopy(directory);
  ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(path));
  Hashes hashes;
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(const FileHash hash,
                     HashFile(kJobTokenizer, absl::StrCat(path, "/", name)));
    hashes[name] = hash.sha256;
  }
  const auto config = HashFile(kJobTokenizer, ConfigCopy(directory));
  if (!absl::IsNotFound(config.status())) {
    RETURN_IF_ERROR(config.status());
    hashes[kConfigName] = config->sha256;
  }
  return hashes;
}

// `known`: what is sure of the copy; the model must still have the same.
absl::Status MakeAgain(const ModelDirectory& model,
                       const std::vector<int64_t>& turn_ends,
                       const Hashes& known, const std::string& directory) {
  const std::string path = TokenizerCopy(directory);
  const std::string temporary = TemporaryName(path);
  ASSIGN_OR_RETURN(const Hashes hashes, CopyAside(model, turn_ends, temporary));
  if (hashes != known) {
    return absl::FailedPreconditionError(absl::StrCat(
        path,
        ": damaged, and the model's tokenizer has changed since it was "
        "copied from there; submit the job again"));
  }
  RH_LOG(kWarning) << path << ": damaged; copied again from " << model.path;
  RETURN_IF_ERROR(
      Publish(model, hashes, directory, temporary, RenameMode::kExchange));
  const absl::Status removed = RemoveTree(kJobTokenizer, temporary);
  if (!removed.ok()) RH_LOG(kWarning) << removed.message();
  return absl::OkStatus();
}

absl::Status VerifyCopy(const ModelDirectory& model,
                        const std::vector<int64_t>& turn_ends,
                        const std::string& directory) {
  const auto manifest = ReadManifest(directory);
  if (manifest.ok() && !manifest->has_value()) return absl::OkStatus();
  if (!manifest.ok() && !absl::IsDataLoss(manifest.status())) {
    return manifest.status();
  }
  ASSIGN_OR_RETURN(const Hashes found, HashCopy(directory));
  if (manifest.ok() && **manifest == found) return absl::OkStatus();
  return MakeAgain(model, turn_ends, manifest.ok() ? **manifest : found,
                   directory);
}

}  // namespace

std::string TokenizerCopy(const std::string& directory) {
  return absl::StrCat(directory, "/tokenizer");
}

bool HasTokenizerCopy(const std::string& directory) {
  std::error_code error;
  return fs::is_directory(TokenizerCopy(directory), error);
}

std::string WithTurnEnds(const std::string& json,
                         const std::string& config_json,
                         const std::vector<int64_t>& turn_ends) {
  using Json = OrderedJson;
  Json settings = Json::object();
  if (!json.empty()) {
    if (!CheckJson(json, kGenerationConfig, kGenerationLimits).ok()) {
      return json;
    }
    settings = Json::parse(json);
    if (!settings.is_object()) return json;
  }
  const Json config = Json::parse(config_json, nullptr, /*allow_exceptions=*/
                                  false);
  Json ends = settings.value(kEos, Json());
  if (ends.is_null() && config.is_object()) ends = config.value(kEos, Json());
  if (!ends.is_array()) {
    // In braces alone g++ makes an array of it, and clang does not.
    ends = ends.is_null() ? Json::array() : Json::array({ends});
  }
  for (const int64_t end : turn_ends) {
    if (std::find(ends.begin(), ends.end(), Json(end)) == ends.end()) {
      ends.push_back(end);
    }
  }
  settings[kEos] = std::move(ends);
  return settings.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::StatusOr<std::vector<std::string>> KeepTokenizer(
    const ModelDirectory& model, const std::string& directory,
    const std::vector<int64_t>& turn_ends) {
  const std::string path = TokenizerCopy(directory);
  if (HasTokenizerCopy(directory)) {
    RETURN_IF_ERROR(VerifyCopy(model, turn_ends, directory));
  } else {
    RETURN_IF_ERROR(MakeFolderDurably(kJobTokenizer, directory));
    const std::string temporary = TemporaryName(path);
    ASSIGN_OR_RETURN(const Hashes hashes,
                     CopyAside(model, turn_ends, temporary));
    RETURN_IF_ERROR(
        Publish(model, hashes, directory, temporary, RenameMode::kKeep));
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
