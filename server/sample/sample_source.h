// Where a sample's weights are read from: a model's directory, or an adapter's
// with the base that it was made for.
#ifndef ROUNDHOUSE_SERVER_SAMPLE_SAMPLE_SOURCE_H_
#define ROUNDHOUSE_SERVER_SAMPLE_SAMPLE_SOURCE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "base/model/directory.h"
#include "server/dataset/dataset_inspector.h"
#include "server/dataset/given_files.h"
#include "server/weights/adapter_files.h"

namespace roundhouse {

struct SampleSource {
  std::string path;  // what was asked for
  ModelDirectory model;
  std::optional<AdapterDirectory> adapter;
  DType dtype = DType::kF32;        // of the model's weights in memory
  std::string base_key;             // BaseKey of the model, as it was opened
  std::string tokenizer_directory;  // `path`, or the base's
  std::vector<GivenFile> given;     // what tokenizes reads
  std::string template_date;        // YYYY-MM-DD; "": today
  std::string project;              // whose share of the devices it takes
  // Nobody deletes the files as long as it is there (removal/readings.h).
  // Shared, for a source is copied on its way to who reads it.
  std::shared_ptr<const void> reading;
};

// Errors are about the field "model".  `dtype` empty: the checkpoint's, else
// that of the model's config.json.  An adapter's base is looked up by
// `resolve`, files are opened by `files`.  Blocks on file reads; thread-safe.
absl::StatusOr<SampleSource> OpenSampleSource(const std::string& path,
                                              std::optional<DType> dtype,
                                              const FileOpener& files,
                                              const PathResolver& resolve);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_SAMPLE_SAMPLE_SOURCE_H_
