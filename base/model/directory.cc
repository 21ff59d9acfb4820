#include "base/model/directory.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/limits.h"
#include "base/model/input_file.h"
#include "base/model/json.h"
#include "base/model/safetensors.h"
#include "base/model/safetensors_index.h"
#include "base/status.h"

namespace roundhouse {
namespace {

constexpr char kWeightsName[] = "model.safetensors";
constexpr char kIndexName[] = "model.safetensors.index.json";
constexpr char kHeadName[] = "lm_head.weight";
constexpr char kEmbeddingName[] = "model.embed_tokens.weight";

constexpr const char* kTokenizerFiles[] = {
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
};

// A tensor and the file it was found in.
struct FoundTensor {
  std::string name;  // of the file, in the directory
  CheckedFile file;
  SafetensorsTensor tensor;
};
using FoundTensors = std::map<std::string, FoundTensor>;

class DirectoryReader {
 public:
  DirectoryReader(const FileOpener& files, std::string path)
      : files_(files), path_(std::move(path)) {}

  std::string FilePath(const std::string& name) const {
    return absl::StrCat(path_, absl::EndsWith(path_, "/") ? "" : "/", name);
  }

  bool Exists(const std::string& name) const {
    return files_.IsThere(FilePath(name));
  }

  absl::Status CheckIsDirectory() const {
    const absl::Status status = files_.OpenDirectory(path_).status();
    if (!absl::IsNotFound(status)) return status;
    return absl::NotFoundError(
        absl::StrCat(path_, ": no such model directory"));
  }

  absl::StatusOr<std::string> ReadText(const std::string& name,
                                       uint64_t max_bytes) {
    ASSIGN_OR_RETURN(const InputFile file, files_.Open(FilePath(name)));
    seen_.push_back(file.checked());
    return ReadWhole(file, max_bytes);
  }

  absl::StatusOr<SafetensorsHeader> ReadHeader(const std::string& name) {
    ASSIGN_OR_RETURN(SafetensorsHeader header,
                     ReadSafetensorsHeader(files_, FilePath(name)));
    seen_.push_back(header.file);
    return header;
  }

  absl::Status FindTokenizerFiles(ModelDirectory* directory) {
    directory->tokenizer_files = TokenizerFilesIn(files_, path_);
    for (const std::string& name : directory->tokenizer_files) {
      ASSIGN_OR_RETURN(const InputFile file, files_.Open(FilePath(name)));
      RETURN_IF_ERROR(CheckSize(file, kMaxTokenizerFileBytes));
      // What the dataset helper reads; the others are only copied.
      if (absl::EndsWith(name, ".json") || absl::EndsWith(name, ".jinja")) {
        RETURN_IF_ERROR(CheckNoLfsPointer(file));
      }
      seen_.push_back(file.checked());
      directory->tokenizer.push_back(file.checked());
    }
    return absl::OkStatus();
  }

  std::vector<CheckedFile> TakeSeen() { return std::move(seen_); }

  // transformers takes the single file where both are there.
  absl::StatusOr<FoundTensors> FindTensors() {
    if (Exists(kWeightsName)) return FindInSingleFile();
    if (Exists(kIndexName)) return FindInShards();
    const bool pickled =
        Exists("pytorch_model.bin") || Exists("pytorch_model.bin.index.json");
    return absl::NotFoundError(absl::StrCat(
        path_, ": neither ", kWeightsName, " nor ", kIndexName, " is there",
        pickled ? "; pytorch_model.bin is not read, save the model as "
                  "safetensors"
                : ""));
  }

 private:
  absl::StatusOr<FoundTensors> FindInSingleFile() {
    ASSIGN_OR_RETURN(SafetensorsHeader header, ReadHeader(kWeightsName));
    FoundTensors found;
    for (auto& [name, tensor] : header.tensors) {
      found[name] = {kWeightsName, header.file, std::move(tensor)};
    }
    return found;
  }

  absl::StatusOr<FoundTensors> FindInShards() {
    ASSIGN_OR_RETURN(const std::string json,
                     ReadText(kIndexName, kMaxIndexBytes));
    ASSIGN_OR_RETURN(const auto file_of_tensor,
                     ParseSafetensorsIndex(json, FilePath(kIndexName)));
    std::set<std::string> files;
    for (const auto& [name, file] : file_of_tensor) files.insert(file);
    FoundTensors found;
    for (const std::string& file : files) {
      RETURN_IF_ERROR(AddShard(file, &found));
    }
    for (const auto& [name, file] : file_of_tensor) {
      const auto tensor = found.find(name);
      if (tensor == found.end() || tensor->second.name != file) {
        return absl::InvalidArgumentError(
            absl::StrCat(FilePath(kIndexName), ": tensor ", QuoteForError(name),
                         " is not in ", QuoteForError(file)));
      }
    }
    return found;
  }

  absl::Status AddShard(const std::string& file, FoundTensors* found) {
    absl::StatusOr<SafetensorsHeader> header = ReadHeader(file);
    if (absl::IsNotFound(header.status())) {
      return absl::NotFoundError(absl::StrCat(FilePath(file),
                                              ": this shard, named in ",
                                              kIndexName, ", is missing"));
    }
    RETURN_IF_ERROR(header.status());
    for (auto& [name, tensor] : header->tensors) {
      const auto [place, inserted] =
          found->try_emplace(name, FoundTensor{file, header->file, tensor});
      if (!inserted) {
        return absl::InvalidArgumentError(
            absl::StrCat(FilePath(file), ": tensor ", QuoteForError(name),
                         " is also in ", place->second.file.path));
      }
    }
    return absl::OkStatus();
  }

  const FileOpener& files_;
  const std::string path_;
  std::vector<CheckedFile> seen_;
};

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

absl::StatusOr<ParameterSource> SourceOf(const StoredTensor& spec,
                                         const FoundTensor& found) {
  const SafetensorsTensor& tensor = found.tensor;
  if (tensor.shape != spec.shape) {
    return absl::InvalidArgumentError(
        absl::StrCat(found.file.path, ": parameter ", spec.name, ": shape ",
                     ShapeText(tensor.shape), " found, ", ShapeText(spec.shape),
                     " expected by config.json"));
  }
  const std::optional<DType> dtype = ToDType(tensor.dtype);
  if (!dtype.has_value()) {
    return absl::UnimplementedError(
        absl::StrCat(found.file.path, ": parameter ", spec.name, ": dtype ",
                     FileDTypeName(tensor.dtype),
                     " is not supported; supported: F32, BF16, F16"));
  }
  return ParameterSource{.file = found.file,
                         .offset = tensor.begin,
                         .bytes = tensor.end - tensor.begin,
                         .dtype = *dtype};
}

// The first few names and how many more there are.
std::string SomeNames(const std::vector<std::string>& names) {
  constexpr size_t kShown = 5;
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(kShown, names.size()); ++i) {
    shown.push_back(QuoteForError(names[i]));
  }
  std::string text = absl::StrJoin(shown, ", ");
  if (names.size() > kShown) {
    absl::StrAppend(&text, " and ", names.size() - kShown, " more");
  }
  return text;
}

// Takes every parameter's tensor out of `found`.
absl::Status TakeParameters(FoundTensors* found, ModelDirectory* directory) {
  std::vector<std::string> missing;
  for (const UnitSpec& unit : ModelUnits(directory->config)) {
    std::vector<ParameterSource>& sources = directory->sources.emplace_back();
    for (const StoredTensor& stored : StoredTensors(unit)) {
      const auto tensor = found->find(stored.name);
      if (tensor == found->end()) {
        missing.push_back(stored.name);
        continue;
      }
      ASSIGN_OR_RETURN(ParameterSource source,
                       SourceOf(stored, tensor->second));
      directory->weight_bytes += source.bytes;
      sources.push_back(std::move(source));
      found->erase(tensor);
    }
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      directory->path,
      ": parameters missing from the weights: ", SomeNames(missing)));
}

absl::StatusOr<bool> SameBytes(const FileOpener& files,
                               const ParameterSource& a,
                               const ParameterSource& b) {
  constexpr uint64_t kChunkBytes = 1 << 20;
  ASSIGN_OR_RETURN(const InputFile file_a, files.Open(a.file.path));
  ASSIGN_OR_RETURN(const InputFile file_b, files.Open(b.file.path));
  std::vector<char> chunk_a(kChunkBytes), chunk_b(kChunkBytes);
  for (uint64_t done = 0; done < a.bytes; done += kChunkBytes) {
    const uint64_t bytes = std::min(kChunkBytes, a.bytes - done);
    RETURN_IF_ERROR(file_a.Read(a.offset + done, bytes, chunk_a.data()));
    RETURN_IF_ERROR(file_b.Read(b.offset + done, bytes, chunk_b.data()));
    if (std::memcmp(chunk_a.data(), chunk_b.data(), bytes) != 0) return false;
  }
  return true;
}

// Training the embedding for both would silently drop a different head.
absl::Status CheckTiedHead(const FileOpener& files,
                           const ModelDirectory& directory,
                           const FoundTensor& head) {
  const ParameterSource& embedding = directory.sources[0][0];
  const SafetensorsTensor& tensor = head.tensor;
  const ParameterSpec spec = ModelUnit(directory.config, 0).parameters[0];
  bool same =
      tensor.shape == spec.shape && ToDType(tensor.dtype) == embedding.dtype;
  if (same) {
    const ParameterSource source = {.file = head.file,
                                    .offset = tensor.begin,
                                    .bytes = tensor.end - tensor.begin,
                                    .dtype = embedding.dtype};
    ASSIGN_OR_RETURN(same, SameBytes(files, source, embedding));
  }
  if (same) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      head.file.path, ": ", kHeadName, " differs from ", kEmbeddingName,
      ", but config.json says tie_word_embeddings: true; set it to false to "
      "train both"));
}

absl::Status CheckLeftovers(const FileOpener& files, const FoundTensors& found,
                            ModelDirectory* directory) {
  std::vector<std::string> unexpected;
  for (const auto& [name, tensor] : found) {
    if (name == kHeadName && directory->config.tie_word_embeddings) {
      RETURN_IF_ERROR(CheckTiedHead(files, *directory, tensor));
      directory->ignored.push_back(name);
    } else if (absl::EndsWith(name, "rotary_emb.inv_freq")) {
      directory->ignored.push_back(name);
    } else {
      unexpected.push_back(name);
    }
  }
  if (unexpected.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      directory->path, ": tensors that the model of config.json has no place ",
      "for: ", SomeNames(unexpected)));
}

// Whether a file in the folder is named as "tool_use.jinja" is.
bool IsTemplateName(absl::string_view name) {
  return absl::EndsWith(name, ".jinja") && !absl::StartsWith(name, ".") &&
         !absl::StrContains(name, '/') && !absl::StrContains(name, '\0');
}

// The names of templates in the folder of chat templates, in order; none where
// it cannot be listed.
std::vector<std::string> TemplatesIn(const FileOpener& files,
                                     const std::string& folder) {
  std::vector<std::string> names;
  const auto found = files.OpenDirectory(folder);
  if (!found.ok()) return names;
  const auto all = NamesIn(*found);
  if (!all.ok()) return names;
  std::copy_if(all->begin(), all->end(), std::back_inserter(names),
               IsTemplateName);
  std::sort(names.begin(), names.end());
  names.resize(std::min(names.size(), kMaxChatTemplates + 1));
  return names;
}

}  // namespace

bool IsTokenizerFile(const std::string& name) {
  absl::string_view in_folder = name;
  if (absl::ConsumePrefix(&in_folder,
                          absl::StrCat(kChatTemplatesFolder, "/"))) {
    return IsTemplateName(in_folder);
  }
  return std::find(std::begin(kTokenizerFiles), std::end(kTokenizerFiles),
                   name) != std::end(kTokenizerFiles);
}

std::string TokenizerFileName(const std::string& path) {
  const std::filesystem::path whole(path);
  const std::string name = whole.filename().string();
  return whole.parent_path().filename() == kChatTemplatesFolder
             ? absl::StrCat(kChatTemplatesFolder, "/", name)
             : name;
}

std::vector<std::string> TokenizerFilesIn(const FileOpener& files,
                                          const std::string& directory) {
  std::vector<std::string> found;
  for (const char* name : kTokenizerFiles) {
    if (files.IsThere(absl::StrCat(directory, "/", name))) {
      found.push_back(name);
    }
  }
  for (const std::string& name :
       TemplatesIn(files, absl::StrCat(directory, "/", kChatTemplatesFolder))) {
    found.push_back(absl::StrCat(kChatTemplatesFolder, "/", name));
  }
  return found;
}

absl::StatusOr<ModelDirectory> OpenModelDirectory(
    const FileOpener& files, const std::string& path,
    const ModelDirectoryOptions& options) {
  DirectoryReader reader(files, path);
  RETURN_IF_ERROR(reader.CheckIsDirectory());
  ModelDirectory directory;
  directory.path = path;
  ASSIGN_OR_RETURN(directory.config_json,
                   reader.ReadText("config.json", kMaxConfigBytes));
  ASSIGN_OR_RETURN(
      directory.config,
      ParseModelConfig(directory.config_json, reader.FilePath("config.json")));
  RETURN_IF_ERROR(reader.FindTokenizerFiles(&directory));
  if (options.init == ModelInit::kPretrained) {
    ASSIGN_OR_RETURN(FoundTensors found, reader.FindTensors());
    RETURN_IF_ERROR(TakeParameters(&found, &directory));
    RETURN_IF_ERROR(CheckLeftovers(files, found, &directory));
  }
  directory.files = reader.TakeSeen();
  return directory;
}

}  // namespace roundhouse
