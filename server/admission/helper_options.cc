#include "server/admission/helper_options.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/status.h"
#include "server/admission/source_files.h"

namespace roundhouse {

HelperProgram HelperOptions::TextProgram() const {
  const std::filesystem::path scripts =
      std::filesystem::path(dataset_.script).parent_path();
  return {.python = dataset_.python,
          .script = scripts / "prepare_sample.py",
          .start = dataset_.start};
}

PreparerOptions HelperOptions::Data(const JobRecord& job,
                                    const JobSpec& spec) const {
  PreparerOptions options;
  options.program = dataset_;
  options.reading = {.tokenizer_directory = spec.model_name_or_path,
                     .data_files = spec.dataset,
                     .format = DatasetFormatArgument(spec.dataset_format),
                     .columns = DatasetColumnsArgument(spec.dataset_columns),
                     .max_samples = spec.max_samples,
                     .validation_split = spec.validation_split,
                     .max_length = *spec.max_length,
                     .truncation = TruncationName(spec.truncation),
                     .packing = spec.packing,
                     .seed = spec.seed,
                     .template_date = spec.template_date};
  options.validation_files = spec.validation_dataset;
  options.given = Submitted(job.id, spec);
  options.output_directory = paths_.Data(job);
  options.cache_directory = paths_.prepared();
  return options;
}

GivenFiles HelperOptions::Submitted(const std::string& id,
                                    const JobSpec& spec) const {
  return [this, id, spec] { return FilesOf(id, spec); };
}

absl::StatusOr<std::vector<GivenFile>> HelperOptions::FilesOf(
    const std::string& id, const JobSpec& spec) const {
  std::vector<std::string> data = spec.dataset;
  for (const std::string& file : spec.validation_dataset) {
    // One file may be both, and is given once.
    if (std::find(data.begin(), data.end(), file) == data.end()) {
      data.push_back(file);
    }
  }
  ASSIGN_OR_RETURN(const JobRecord job, store_.Get(id));
  ASSIGN_OR_RETURN(const SourceFiles then, SourceFilesFromJson(job.files));
  auto given = FilesToGive(roots_, spec.model_name_or_path, data);
  absl::Status status = given.status();
  SourceFiles now;
  if (given.ok()) {
    for (const GivenFile& one : *given) now.push_back(one.file);
    status = CheckUnchanged(then, now);
    if (status.ok()) {
      status = CheckTokenizerIsThere(then, now, spec.model_name_or_path);
    }
  }
  if (status.ok()) return given;
  if (absl::IsUnavailable(status)) return status;  // descriptors are short
  return absl::InvalidArgumentError(std::string(status.message()));
}

TextHelperOptions HelperOptions::Text(const JobSpec& spec, bool chat_template,
                                      GivenFiles given) const {
  return {.program = TextProgram(),
          .tokenizer_directory = spec.model_name_or_path,
          .model_directory = spec.model_name_or_path,
          .raw = !chat_template,
          .template_date = spec.template_date,
          .given = std::move(given)};
}

}  // namespace roundhouse
