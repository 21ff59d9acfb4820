#include "server/sample/sample_source.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/path_exists.h"
#include "base/status.h"
#include "server/spec/spec_error.h"
#include "server/weights/base_weights.h"
#include "server/weights/checkpoint.h"

namespace roundhouse {
namespace {

// A directory's own error, about the field that named it.
absl::Status ModelError(const absl::Status& status) {
  const bool unimplemented = absl::IsUnimplemented(status);
  return FieldError(
      unimplemented ? absl::StatusCode::kUnimplemented
                    : absl::StatusCode::kInvalidArgument,
      unimplemented ? FieldReason::kNotAvailable : FieldReason::kInvalidModel,
      "model", std::string(status.message()));
}

absl::StatusOr<DType> DTypeOf(const FileOpener& files, const std::string& path,
                              const ModelConfig& model) {
  if (files.IsThere(path + "/checkpoint.json")) {
    ASSIGN_OR_RETURN(const CheckpointManifest manifest,
                     ReadCheckpoint(files, path));
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      if (manifest.dtype == DTypeName(dtype)) return dtype;
    }
    return DType::kF32;
  }
  return model.dtype;
}

absl::StatusOr<SampleSource> Open(const std::string& path,
                                  std::optional<DType> dtype,
                                  const FileOpener& files,
                                  const PathResolver& resolve) {
  SampleSource source;
  source.path = path;
  const bool is_adapter = IsAdapterDirectory(files, path);
  std::string model = path;
  if (is_adapter) {
    ASSIGN_OR_RETURN(const std::string base, BaseOfAdapter(files, path));
    ASSIGN_OR_RETURN(model, resolve("model", base, PathKind::kModel));
  }
  ASSIGN_OR_RETURN(source.model, OpenModelDirectory(files, model));
  if (is_adapter) {
    ASSIGN_OR_RETURN(source.adapter,
                     OpenAdapterDirectory(files, path, source.model.config));
  }
  if (dtype.has_value()) {
    source.dtype = *dtype;
  } else {
    ASSIGN_OR_RETURN(source.dtype, DTypeOf(files, path, source.model.config));
  }
  ASSIGN_OR_RETURN(source.base_key, BaseKey(source.model, source.dtype));
  const bool own = files.IsThere(path + "/tokenizer.json");
  source.tokenizer_directory = own ? path : model;
  if (!own && !files.IsThere(model + "/tokenizer.json")) {
    return absl::NotFoundError(
        absl::StrCat(model, " has no tokenizer.json, which sampling needs"));
  }
  std::vector<std::string> of_model;
  for (const char* name : {"/config.json", "/generation_config.json"}) {
    if (path == model || !own || !files.IsThere(model + name)) continue;
    of_model.push_back(model + name);
  }
  ASSIGN_OR_RETURN(source.given,
                   FilesToGive(files, source.tokenizer_directory, of_model));
  return source;
}

}  // namespace

absl::StatusOr<SampleSource> OpenSampleSource(const std::string& path,
                                              std::optional<DType> dtype,
                                              const FileOpener& files,
                                              const PathResolver& resolve) {
  auto source = Open(path, dtype, files, resolve);
  // A path that `resolve` refused says so itself.
  if (source.ok() || ErrorReason(source.status()) != FieldReason::kNone)
    return source;
  return ModelError(source.status());
}

}  // namespace roundhouse
