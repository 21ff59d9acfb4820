// Engine: what lies in the jobs' directories: prepared data, and what was left
// there by saves that were cut short.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/jobs/engine.h"
#include "server/jobs/finish_mark.h"
#include "server/jobs/source_files.h"
#include "server/jobs/tokenizer_copy.h"
#include "server/weights/leftovers.h"

namespace roundhouse {

PreparerOptions Engine::OptionsOfData(const JobRecord& job,
                                      const JobSpec& spec) const {
  PreparerOptions options;
  options.program = {.python = options_.python,
                     .script = options_.prepare_script,
                     .processes = options_.dataset_processes};
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
  options.given = [this, id = job.id, spec] { return FilesOfData(id, spec); };
  options.output_directory = paths_.Data(job);
  options.cache_directory = paths_.prepared();
  return options;
}

// What was submitted, or nothing.
absl::StatusOr<std::vector<GivenFile>> Engine::FilesOfData(
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
  auto given = FilesToGive(*roots_, spec.model_name_or_path, data);
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

// Whether weights, adapter and configuration are what was submitted.
absl::Status Engine::CheckSources(const JobRecord& job,
                                  const AdmittedJob& admitted) const {
  const ModelDirectory& model = admitted.model;
  const std::optional<AdapterDirectory>& adapter = admitted.adapter;
  ASSIGN_OR_RETURN(const SourceFiles then, SourceFilesFromJson(job.files));
  SourceFiles now = model.files;
  if (HasTokenizerCopy(paths_.Directory(job))) {
    // The job's own are used.
    std::erase_if(now, [&](const CheckedFile& file) {
      return std::find(model.tokenizer.begin(), model.tokenizer.end(), file) !=
             model.tokenizer.end();
    });
  }
  if (adapter.has_value()) {
    now.insert(now.end(), adapter->files.begin(), adapter->files.end());
  }
  return CheckUnchanged(then, now);
}

std::optional<absl::Status> Engine::CheckData(const std::string& id) {
  if (data_check_id_ == id) {
    if (!data_status_.has_value()) return std::nullopt;
    const absl::Status status = *data_status_;
    ForgetData(id);
    return status;
  }
  // Whatever else is wrong with a job, it fails as it starts.
  const auto job = store_.Get(id);
  if (!job.ok()) return absl::OkStatus();
  const auto spec = ResolvedSpec::FromJson(job->resolved);
  if (!spec.ok()) return absl::OkStatus();
  data_status_.reset();
  data_check_id_ = id;
  data_check_ = PreparedDataCheck::Start(
      loop_, OptionsOfData(*job, spec->spec()),
      [this, id](const PreparedDataCheck::Result& result) {
        OnDataChecked(id, result);
      });
  return std::nullopt;
}

void Engine::OnDataChecked(const std::string& id,
                           const PreparedDataCheck::Result& result) {
  data_status_ = result.status;
  const auto job = store_.Get(id);
  if (!result.damage.empty() && job.ok()) {
    Warn(*job, absl::StrCat("the prepared data were damaged: ", result.damage,
                            result.status.ok()
                                ? "; they were prepared again"
                                : "; they could not be prepared again"));
  }
  // Not from within the check's own callback.
  loop_.After(absl::ZeroDuration(), [this] { StartNext(); });
}

void Engine::ForgetData(const std::string& id) {
  if (data_check_id_ != id) return;
  data_check_.reset();
  data_check_id_.clear();
  data_status_.reset();
}

std::optional<int64_t> Engine::FinishStepOf(const JobRecord& job) {
  const auto step = ReadFinishMark(paths_.FinishMark(job));
  if (step.ok()) return *step;
  Warn(job, absl::StrCat(std::string(step.status().message()),
                         ": the job was asked to finish early and goes on to "
                         "its last step; finish it once more"));
  return std::nullopt;
}

void Engine::Warn(const JobRecord& job, const std::string& what) {
  const std::string text = "WARNING: " + what;
  const auto files = JobFiles::Open(paths_.Directory(job));
  if (files.ok()) (*files)->Log(text);
  transitions_.Want(job.id, "a warning", [this, id = job.id, text] {
    return store_.AddEvent(id, "note", text);
  });
}

void Engine::RemoveLeftovers() {
  SweepJobDirectories(paths_.jobs());
  SweepOutputs(paths_.outputs(), [this](const std::string& name) {
    return names_->FindJob(name).ok();
  });
}

}  // namespace roundhouse
