#include "server/admission/job_checker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/path_exists.h"
#include "base/status.h"
#include "server/planning/job_needs.h"
#include "server/spec/job_file.h"
#include "server/spec/model_limits.h"
#include "server/spec/spec_error.h"
#include "server/weights/base_weights.h"
#include "server/weights/checkpoint.h"

namespace roundhouse {
namespace {

constexpr char kIdPrefix[] = "job-";

// An adapter's own error, with the field that named it.
absl::Status AdapterError(const std::string& field,
                          const absl::Status& status) {
  // The disk or a shortage is at fault, not the adapter.
  if (absl::IsUnavailable(status) || absl::IsInternal(status)) return status;
  const bool unimplemented = absl::IsUnimplemented(status);
  return FieldError(
      unimplemented ? absl::StatusCode::kUnimplemented
                    : absl::StatusCode::kInvalidArgument,
      unimplemented ? FieldReason::kNotAvailable : FieldReason::kInvalidValue,
      field, std::string(status.message()));
}

// What somebody who said nothing of the dtype would want to know; "": nothing.
std::string DtypeWarning(const ModelDirectory& model, DType dtype,
                         const DeviceRoom& device) {
  if (dtype == DType::kF32 && device.with_libraries) {
    return "dtype is fp32, as the model's files are; on GPUs bf16 is several "
           "times faster and takes half the memory: say dtype: bf16";
  }
  if (dtype == DType::kBF16 && MostlyIn(model) == DType::kF16) {
    return "dtype is bf16, though the model's files are in fp16, which would "
           "need a loss scale: say dtype: fp16 to have that";
  }
  return "";
}

// What its rows are is found later.
absl::StatusOr<CheckedFile> CheckDataFile(const FileOpener& files,
                                          const std::string& field,
                                          const std::string& path) {
  const auto file = files.Open(path);
  if (file.ok()) return file->checked();
  if (absl::IsUnavailable(file.status())) {
    return absl::UnavailableError(
        absl::StrCat(field, ": ", file.status().message()));
  }
  return FieldError(FieldReason::kInvalidDataset, field,
                    std::string(file.status().message()));
}

void Append(const std::vector<CheckedFile>& files, SourceFiles& to) {
  to.insert(to.end(), files.begin(), files.end());
}

// "job-7": the folder of the outputs of a job without an output_name.
bool LooksLikeJobId(const std::string& name) {
  return absl::StartsWith(name, kIdPrefix) &&
         name.size() > sizeof(kIdPrefix) - 1 &&
         std::all_of(name.begin() + sizeof(kIdPrefix) - 1, name.end(),
                     absl::ascii_isdigit);
}

}  // namespace

absl::StatusOr<ModelDirectory> JobChecker::CheckModel(
    const JobSpec& spec) const {
  const std::string& path = spec.model_name_or_path;
  if (IsAdapterDirectory(roots_, path)) {
    return ModelError(absl::InvalidArgumentError(absl::StrCat(
        path,
        " is an adapter; name its base model here, and the adapter in "
        "adapter_name_or_path with method: lora")));
  }
  auto model = OpenModelDirectory(roots_, path, {.init = spec.model_init});
  if (!model.ok()) return ModelError(model.status());
  if (!roots_.IsThere(model->path + "/tokenizer.json")) {
    return ModelError(absl::NotFoundError(absl::StrCat(
        model->path, " has no tokenizer.json; name the folder that has it")));
  }
  if (spec.max_length.has_value()) {
    RETURN_IF_ERROR(CheckMaxLength(*spec.max_length, model->config));
  }
  return model;
}

absl::StatusOr<JobSpec> JobChecker::CompleteTargets(
    JobSpec spec, const ModelConfig& model) const {
  if (!spec.target_modules.has_value()) return spec;
  const auto targets =
      TargetsOf(*spec.target_modules, model.mixture.layers.any());
  if (!targets.ok()) {
    return FieldError(FieldReason::kInvalidValue, "target_modules",
                      std::string(targets.status().message()));
  }
  spec.target_modules = *targets;
  return spec;
}

absl::StatusOr<std::optional<AdapterDirectory>> JobChecker::CheckAdapter(
    const JobSpec& spec, const ModelConfig& model) const {
  if (spec.adapter_name_or_path.empty()) return std::nullopt;
  auto adapter = OpenAdapterDirectory(roots_, spec.adapter_name_or_path, model);
  if (!adapter.ok()) {
    return AdapterError("adapter_name_or_path", adapter.status());
  }
  RETURN_IF_ERROR(WithAdapter(spec, *adapter).status());
  return std::optional<AdapterDirectory>(*std::move(adapter));
}

absl::StatusOr<JobSpec> JobChecker::CompleteAdapter(
    JobSpec spec, const std::optional<AdapterDirectory>& adapter,
    const ModelConfig& model) const {
  if (spec.method == TrainingMethod::kFull) return spec;
  const std::string& path = spec.resume_from_checkpoint;
  if (path.empty() && !adapter.has_value()) return spec;
  if (path.empty()) return WithAdapter(std::move(spec), *adapter);
  const auto resumed = OpenAdapterDirectory(roots_, path, model);
  if (!resumed.ok()) {
    return AdapterError("resume_from_checkpoint", resumed.status());
  }
  return WithAdapter(std::move(spec), *resumed);
}

// What the checkpoint is, before a job waits for its turn to find out.
absl::StatusOr<std::optional<CheckpointManifest>> JobChecker::CheckResume(
    const ResolvedSpec& resolved, const ModelConfig& model) const {
  const JobSpec& spec = resolved.spec();
  const std::string& path = spec.resume_from_checkpoint;
  if (path.empty()) return std::nullopt;
  auto manifest =
      CheckResumable(roots_, path, model, resolved.adapter(), resolved.dtype());
  if (!manifest.ok()) {
    const bool corrupt = absl::IsDataLoss(manifest.status());
    return FieldError(
        corrupt ? FieldReason::kCheckpointCorrupt : FieldReason::kInvalidValue,
        "resume_from_checkpoint", std::string(manifest.status().message()));
  }
  if (spec.max_steps == 0 || manifest->step < spec.max_steps) {
    return *std::move(manifest);
  }
  return FieldError(FieldReason::kInvalidValue, "resume_from_checkpoint",
                    absl::StrCat(path, ": step ", manifest->step,
                                 " is not below max_steps ", spec.max_steps));
}

std::optional<DType> JobChecker::DtypeToGoOn(const JobSpec& spec) const {
  if (spec.resume_from_checkpoint.empty()) return std::nullopt;
  const auto manifest = ReadCheckpoint(roots_, spec.resume_from_checkpoint);
  // What is wrong with it is CheckResume's to say.
  if (!manifest.ok()) return std::nullopt;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (manifest->dtype == DTypeName(dtype)) return dtype;
  }
  return std::nullopt;
}

absl::Status JobChecker::CheckOutputName(const std::string& name) const {
  if (LooksLikeJobId(name)) {
    return FieldError(
        FieldReason::kInvalidValue, "output_name",
        absl::StrCat("\"", name,
                     "\" is kept for the job of that id; give another one"));
  }
  RETURN_IF_ERROR(store_.CheckOutputName(name));
  const std::string path = absl::StrCat(paths_.outputs(), "/", name);
  if (name.empty() || !PathExists(path)) {
    return absl::OkStatus();
  }
  return FieldError(FieldReason::kInvalidValue, "output_name",
                    absl::StrCat(path, " is there already; give another one"));
}

absl::StatusOr<SourceFiles> JobChecker::FilesOf(
    const JobSpec& spec, const ModelDirectory& model,
    const std::optional<AdapterDirectory>& adapter) const {
  SourceFiles files = model.files;
  if (adapter.has_value()) Append(adapter->files, files);
  for (const std::string& path : spec.dataset) {
    ASSIGN_OR_RETURN(CheckedFile file, CheckDataFile(roots_, "dataset", path));
    files.push_back(std::move(file));
  }
  uint64_t bytes = 0;
  for (const std::string& path : spec.validation_dataset) {
    ASSIGN_OR_RETURN(CheckedFile file,
                     CheckDataFile(roots_, "validation_dataset", path));
    bytes += file.identity.size_bytes;
    files.push_back(std::move(file));
  }
  if (spec.validation_dataset.empty() || bytes > 0) return files;
  return FieldError(
      FieldReason::kInvalidDataset, "validation_dataset",
      absl::StrCat(spec.validation_dataset[0], ": the file is empty"));
}

absl::StatusOr<AdmittedJob> JobChecker::Check(
    const SubmitRequest& request) const {
  ASSIGN_OR_RETURN(JobFile file, ReadJobFile(request.text, request.file_name));
  for (const auto& [field, path] : PathsToUpload(&file.spec())) {
    const auto uploaded = request.uploaded.find(*path);
    if (uploaded != request.uploaded.end()) *path = uploaded->second;
  }
  if (request.priority.has_value()) file.spec().priority = *request.priority;
  if (fit_.room().device_count == 0) {
    RETURN_IF_ERROR(file.status());
    return FieldError(absl::StatusCode::kFailedPrecondition,
                      FieldReason::kNoHealthyDevice, "",
                      "this server runs with --devices=none: no job can run");
  }
  names_.ResolvePaths(&file, {request.caller, Role::kMember, request.project});
  absl::StatusOr<ModelDirectory> model = absl::NotFoundError("no model");
  if (!file.spec().model_name_or_path.empty()) {
    model = CheckModel(file.spec());
    if (!model.ok()) file.AddFaultOf(model.status());
  }
  RETURN_IF_ERROR(file.status());
  auto job = CheckSpec(file.spec(), *std::move(model));
  if (!job.ok()) return file.Located(job.status());
  if (!file.spec().dtype.has_value() &&
      file.spec().resume_from_checkpoint.empty()) {
    const std::string what =
        DtypeWarning(job->model, job->spec.dtype(), fit_.room().device);
    if (!what.empty()) file.AddWarning(what);
    if (job->model.config.mixture.auxiliary_loss) {
      file.AddWarning(absl::StrCat(
          job->model.path,
          "/config.json: output_router_logits: true: transformers would add "
          "router_aux_loss_coef times an auxiliary loss; the job has none"));
    }
  }
  job->warnings = file.warnings();
  return job;
}

absl::StatusOr<AdmittedJob> JobChecker::CheckSpec(const JobSpec& located,
                                                  ModelDirectory model) const {
  ASSIGN_OR_RETURN(const JobSpec targeted,
                   CompleteTargets(located, model.config));
  ASSIGN_OR_RETURN(std::optional<AdapterDirectory> adapter,
                   CheckAdapter(targeted, model.config));
  ASSIGN_OR_RETURN(JobSpec complete,
                   CompleteAdapter(targeted, adapter, model.config));
  if (!complete.dtype.has_value()) complete.dtype = DtypeToGoOn(complete);
  if (complete.template_date.empty()) {
    complete.template_date = TemplateDateAt(WallTime());
  }
  AdmittedJob job{.spec = fit_.ResolveToFit(complete, model),
                  .model = std::move(model),
                  .adapter = std::move(adapter)};
  const ModelConfig& config = job.model.config;
  ASSIGN_OR_RETURN(job.files, FilesOf(complete, job.model, job.adapter));
  ASSIGN_OR_RETURN(job.resumed, CheckResume(job.spec, config));
  ASSIGN_OR_RETURN(const Plan plan, fit_.CheckPlan(job.spec, config));
  RETURN_IF_ERROR(fit_.CheckMemory(job.spec, config, plan, &job.needs));
  RETURN_IF_ERROR(
      fit_.CheckFreeDisk(job.spec, config, job.start_step(), &job.needs));
  RETURN_IF_ERROR(CheckOutputName(job.spec.spec().output_name));
  Measure(&job);
  return job;
}

void JobChecker::Measure(AdmittedJob* job) const {
  job->host = fit_.NeedOfSpec(job->spec, job->model.config);
  if (!job->host.ok() || job->host->base_bytes == 0) return;
  const auto key =
      BaseKey(job->model, TrainedOf(job->spec, job->model.config).dtype);
  if (key.ok()) job->base_key = *key;
}

absl::StatusOr<AdmittedJob> JobChecker::TakeUp(const JobRecord& job) const {
  ASSIGN_OR_RETURN(ResolvedSpec spec, ResolvedSpec::FromJson(job.resolved));
  ASSIGN_OR_RETURN(ModelDirectory model, CheckModel(spec.spec()));
  ASSIGN_OR_RETURN(std::optional<AdapterDirectory> adapter,
                   CheckAdapter(spec.spec(), model.config));
  AdmittedJob taken{.spec = std::move(spec),
                    .model = std::move(model),
                    .adapter = std::move(adapter)};
  Measure(&taken);
  return taken;
}

bool JobChecker::IsStillSo(const AdmittedJob& job) const {
  const auto same = [this](const CheckedFile& file) {
    const auto now = roots_.Open(file.path);
    return now.ok() && now->checked() == file;
  };
  const ModelDirectory& model = job.model;
  if (!std::all_of(model.files.begin(), model.files.end(), same) ||
      TokenizerFilesIn(roots_, model.path) != model.tokenizer_files) {
    return false;
  }
  return !job.adapter.has_value() ||
         std::all_of(job.adapter->files.begin(), job.adapter->files.end(),
                     same);
}

}  // namespace roundhouse
