// A Hugging Face model directory, checked: its configuration, and where in
// which file each parameter lies.  Reads config.json, headers and the index;
// tensor data only to compare a tied head that is stored twice.
#ifndef ROUNDHOUSE_BASE_MODEL_DIRECTORY_H_
#define ROUNDHOUSE_BASE_MODEL_DIRECTORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "base/model/config.h"
#include "base/model/input_file.h"
#include "base/model/parameters.h"

namespace roundhouse {

struct ModelDirectoryOptions {
  // kRandom: config.json and tokenizer files only; weight files may be absent
  // and are not looked at.
  ModelInit init = ModelInit::kPretrained;
};

// Where a stored tensor's data lies: row-major, dense, in its shape.
struct ParameterSource {
  CheckedFile file;     // as it was when its header was read
  uint64_t offset = 0;  // bytes
  uint64_t bytes = 0;
  DType dtype = DType::kF32;  // may differ from config.dtype
};

struct ModelDirectory {
  std::string path;
  ModelConfig config;
  std::string config_json;  // the file's text
  // Names, in this directory, of what an export copies along: tokenizer files,
  // chat templates, generation_config.json.  The only ones with a slash are
  // those in kChatTemplatesFolder.
  std::vector<std::string> tokenizer_files;
  // sources[u] are those of the StoredTensors of ModelUnits(config)[u], one
  // parameter's behind the other's; empty for ModelInit::kRandom.
  std::vector<std::vector<ParameterSource>> sources;
  uint64_t weight_bytes = 0;  // of all sources, in the files
  // Tensors of the files that the model doesn't use, known to be harmless: a
  // tied head equal to the embedding, rotary tables.
  std::vector<std::string> ignored;
  // Every file that was read or that an export copies, as it was then.
  std::vector<CheckedFile> files;
  std::vector<CheckedFile> tokenizer;  // those of tokenizer_files, in its order
};

// Chat templates by name ("tool_use.jinja"), beside chat_template.jinja.
inline constexpr char kChatTemplatesFolder[] = "additional_chat_templates";
// In that folder; the dataset helper refuses more.
inline constexpr size_t kMaxChatTemplates = 32;

// Whether tokenizer_files may have that name.
bool IsTokenizerFile(const std::string& name);

// The name that a file of tokenizer_files' kind has in its model's directory:
// the last part of `path`, with kChatTemplatesFolder where that is before it.
std::string TokenizerFileName(const std::string& path);

// The names, in `directory`, of tokenizer_files' kind that are there; of
// templates in the folder one more than kMaxChatTemplates at most.
std::vector<std::string> TokenizerFilesIn(const FileOpener& files,
                                          const std::string& directory);

// Blocks on file reads.  NOT_FOUND names the missing file, INVALID_ARGUMENT
// what is wrong with which file and parameter (shape found and expected, bytes
// found and expected, tensors without a place), UNIMPLEMENTED an architecture
// or dtype by name; and what files.Open says.
absl::StatusOr<ModelDirectory> OpenModelDirectory(
    const FileOpener& files, const std::string& path,
    const ModelDirectoryOptions& options = {});

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_MODEL_DIRECTORY_H_
