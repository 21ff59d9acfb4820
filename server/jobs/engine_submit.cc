// Engine: what is checked when a job is submitted.  Any thread; reads files
// only.
#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/byte_text.h"
#include "base/dtype.h"
#include "base/model/parameters.h"
#include "base/path_exists.h"
#include "base/status.h"
#include "server/jobs/disk_need.h"
#include "server/jobs/engine.h"
#include "server/jobs/job_needs.h"
#include "server/jobs/plan_costs.h"
#include "server/spec/job_file.h"
#include "server/spec/model_limits.h"
#include "server/spec/spec_error.h"
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
  return FieldError(unimplemented ? absl::StatusCode::kUnimplemented
                                  : absl::StatusCode::kInvalidArgument,
                    unimplemented ? "NOT_AVAILABLE" : "INVALID_VALUE", field,
                    absl::StrCat(field, ": ", std::string(status.message())));
}

std::string FrozenText(const HostNeed& need) {
  return need.base_bytes == 0
             ? ""
             : absl::StrCat(ByteText(need.base_bytes), " of the base model, ");
}

// What somebody who said nothing of the dtype would want to know; "": nothing.
std::string DtypeWarning(const ModelDirectory& model, SpecDtype dtype,
                         const DeviceRoom& device) {
  if (dtype == SpecDtype::kFp32 && device.with_libraries) {
    return "dtype is fp32, as the model's files are; on GPUs bf16 is several "
           "times faster and takes half the memory: say dtype: bf16";
  }
  if (dtype == SpecDtype::kBf16 && MostlyIn(model) == DType::kF16) {
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
  return FieldError(
      "INVALID_DATASET", field,
      absl::StrCat(field, ": ", std::string(file.status().message())));
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

// A job by its id, or the newest of that output_name.
absl::StatusOr<JobRecord> Engine::FindJob(const std::string& name) const {
  auto job = store_.Get(name);
  if (job.ok()) return job;
  ASSIGN_OR_RETURN(const auto id, store_.FindOutputName(name));
  if (id.has_value()) return store_.Get(*id);
  return absl::NotFoundError(absl::StrCat("there is no job \"", name, "\""));
}

absl::StatusOr<ModelDirectory> Engine::CheckModel(const JobSpec& spec) const {
  const std::string& path = spec.model_name_or_path;
  if (IsAdapterDirectory(*roots_, path)) {
    return ModelError(absl::InvalidArgumentError(absl::StrCat(
        path,
        " is an adapter; name its base model here, and the adapter in "
        "adapter_name_or_path with method: lora")));
  }
  auto model = OpenModelDirectory(*roots_, path, {.init = spec.model_init});
  if (!model.ok()) return ModelError(model.status());
  if (!roots_->IsThere(model->path + "/tokenizer.json")) {
    return ModelError(absl::NotFoundError(absl::StrCat(
        model->path, " has no tokenizer.json; name the folder that has it")));
  }
  if (spec.max_length.has_value()) {
    RETURN_IF_ERROR(CheckMaxLength(*spec.max_length, model->config));
  }
  return model;
}

absl::StatusOr<std::optional<AdapterDirectory>> Engine::CheckAdapter(
    const JobSpec& spec, const ModelConfig& model) const {
  if (spec.adapter_name_or_path.empty()) return std::nullopt;
  auto adapter =
      OpenAdapterDirectory(*roots_, spec.adapter_name_or_path, model);
  if (!adapter.ok()) {
    return AdapterError("adapter_name_or_path", adapter.status());
  }
  RETURN_IF_ERROR(WithAdapter(spec, *adapter).status());
  return std::optional<AdapterDirectory>(*std::move(adapter));
}

absl::StatusOr<JobSpec> Engine::CompleteAdapter(
    JobSpec spec, const ModelConfig& model) const {
  if (spec.method == Method::kFull) return spec;
  const bool resumes = !spec.resume_from_checkpoint.empty();
  const std::string path =
      resumes ? spec.resume_from_checkpoint : spec.adapter_name_or_path;
  if (path.empty()) return spec;
  const auto adapter = OpenAdapterDirectory(*roots_, path, model);
  if (!adapter.ok()) {
    return AdapterError(
        resumes ? "resume_from_checkpoint" : "adapter_name_or_path",
        adapter.status());
  }
  return WithAdapter(std::move(spec), *adapter);
}

PlanLimits Engine::LimitsOfJob(const ResolvedSpec& spec,
                               const ModelConfig& model) const {
  return PlanLimits(LimitsOf(spec, model, spec.max_length(),
                             pool_.device_count(), options_.device));
}

// More groups need more device memory for their sums: as many as fit.
ResolvedSpec Engine::ResolveToFit(JobSpec spec,
                                  const ModelDirectory& directory) const {
  const ModelConfig& model = directory.config;
  const int devices = pool_.device_count();
  const SpecDefaults usual = DefaultsOf(directory, options_.device);
  ResolvedSpec resolved = ResolvedSpec::Resolve(spec, devices, usual);
  if (spec.gradient_groups.has_value()) return resolved;
  while (resolved.gradient_groups() > 1) {
    const auto plan = InitialPlan(resolved, model, devices, options_.device);
    if (!plan.ok()) break;  // at any number; the error is CheckPlan's
    if (LimitsOfJob(resolved, model).CheckSlots(*plan).ok()) break;
    spec.gradient_groups = resolved.gradient_groups() / 2;
    resolved = ResolvedSpec::Resolve(spec, devices, usual);
  }
  return resolved;
}

absl::StatusOr<Plan> Engine::CheckPlan(const ResolvedSpec& spec,
                                       const ModelConfig& model) const {
  auto plan = InitialPlan(spec, model, pool_.device_count(), options_.device);
  absl::Status status = plan.status();
  if (status.ok()) {
    RETURN_IF_ERROR(CheckWidths(spec, pool_.device_count()));
    status = LimitsOfJob(spec, model).CheckSlots(*plan);
  }
  if (absl::IsResourceExhausted(status)) {
    const char* const field =
        spec.spec().plan.has_value() ? "plan" : "model_name_or_path";
    return FieldError(absl::StatusCode::kResourceExhausted, "DEVICE_MEMORY",
                      field,
                      absl::StrCat(field, ": ", std::string(status.message())));
  }
  if (plan.ok() && !status.ok()) {
    return FieldError("INVALID_VALUE", "plan",
                      absl::StrCat("plan: ", std::string(status.message())));
  }
  RETURN_IF_ERROR(status);
  const int64_t most = MaxRoundMicroBatches(*plan);
  if (spec.micro_batches_per_round() > most &&
      spec.spec().batch_size > most * spec.micro_batch_size()) {
    return FieldError(
        "INVALID_VALUE", "micro_batches_per_round",
        absl::StrCat(
            "micro_batches_per_round: ", spec.micro_batches_per_round(),
            "; with this plan a round has at most ", most));
  }
  return plan;
}

absl::Status Engine::CheckMemory(const ResolvedSpec& spec,
                                 const ModelConfig& model, const Plan& plan,
                                 JobNeeds* needs) const {
  const HostNeed need =
      NeedOf(spec, model, plan, spec.max_length(), pool_.device_count());
  needs->host_base_bytes = static_cast<int64_t>(need.base_bytes);
  const uint64_t state_bytes = need.state_bytes + need.contribution_bytes;
  needs->host_state_bytes = static_cast<int64_t>(state_bytes);
  needs->host_buffer_bytes = static_cast<int64_t>(need.buffer_bytes);
  needs->host_table_bytes = static_cast<int64_t>(need.table_bytes);
  needs->host_limit_bytes = static_cast<int64_t>(arena_.limit_bytes());
  needs->device_slot_bytes =
      static_cast<int64_t>(LimitsOfJob(spec, model).LargestSlotBytes(plan));
  needs->device_limit_bytes = static_cast<int64_t>(options_.device.bytes);
  if (need.total() <= arena_.limit_bytes()) return absl::OkStatus();
  return FieldError(
      absl::StatusCode::kResourceExhausted, "HOST_MEMORY", "model_name_or_path",
      absl::StrCat("model_name_or_path: the job needs ", ByteText(need.total()),
                   " of host memory (", FrozenText(need), ByteText(state_bytes),
                   " of training state, ", ByteText(need.buffer_bytes),
                   " of activations and tokens), the limit is ",
                   ByteText(arena_.limit_bytes()),
                   "; method: lora, a smaller max_length or a smaller model "
                   "need less"));
}

absl::Status Engine::CheckFreeDisk(const ResolvedSpec& spec,
                                   const ModelConfig& model, int64_t start_step,
                                   JobNeeds* needs) const {
  const DiskNeed need = DiskNeedOf(spec, model, start_step);
  std::error_code error;
  const auto space = std::filesystem::space(options_.state_dir, error);
  if (error) {
    return absl::InternalError(absl::StrCat("free disk of ", options_.state_dir,
                                            ": ", error.message()));
  }
  needs->checkpoint_bytes = static_cast<int64_t>(need.checkpoint_bytes);
  needs->checkpoint_count = need.checkpoint_count;
  needs->export_bytes = static_cast<int64_t>(need.export_bytes);
  needs->disk_bytes = static_cast<int64_t>(need.total_bytes());
  needs->disk_free_bytes = static_cast<int64_t>(space.available);
  needs->disk_path = options_.state_dir;
  return CheckDisk(need, space.available, options_.state_dir);
}

// What the checkpoint is, before a job waits for its turn to find out; its
// step, or 0.
absl::StatusOr<int64_t> Engine::CheckResume(const ResolvedSpec& resolved,
                                            const ModelConfig& model) const {
  const JobSpec& spec = resolved.spec();
  const std::string& path = spec.resume_from_checkpoint;
  if (path.empty()) return 0;
  const auto manifest = CheckResumable(*roots_, path, model, resolved.adapter(),
                                       ComputeDtype(resolved.dtype()));
  if (!manifest.ok()) {
    const bool corrupt = absl::IsDataLoss(manifest.status());
    return FieldError(corrupt ? "CHECKPOINT_CORRUPT" : "INVALID_VALUE",
                      "resume_from_checkpoint",
                      absl::StrCat("resume_from_checkpoint: ",
                                   std::string(manifest.status().message())));
  }
  if (spec.max_steps == 0 || manifest->step < spec.max_steps) {
    return manifest->step;
  }
  return FieldError(
      "INVALID_VALUE", "resume_from_checkpoint",
      absl::StrCat("resume_from_checkpoint: ", path, ": step ", manifest->step,
                   " is not below max_steps ", spec.max_steps));
}

std::optional<SpecDtype> Engine::DtypeToGoOn(const JobSpec& spec) const {
  if (spec.resume_from_checkpoint.empty()) return std::nullopt;
  const auto manifest =
      ReadCheckpoint(*roots_, spec.resume_from_checkpoint, false);
  // What is wrong with it is CheckResume's to say.
  if (!manifest.ok()) return std::nullopt;
  for (const SpecDtype dtype :
       {SpecDtype::kFp32, SpecDtype::kBf16, SpecDtype::kFp16}) {
    if (manifest->dtype == DTypeName(ComputeDtype(dtype))) return dtype;
  }
  return std::nullopt;
}

absl::Status Engine::CheckOutputName(const JobSpec& spec) const {
  if (LooksLikeJobId(spec.output_name)) {
    return FieldError(
        "INVALID_VALUE", "output_name",
        absl::StrCat("output_name: \"", spec.output_name,
                     "\" is kept for the job of that id; give another one"));
  }
  RETURN_IF_ERROR(store_.CheckOutputName(spec.output_name));
  const std::string path =
      absl::StrCat(options_.state_dir, "/outputs/", spec.output_name);
  if (spec.output_name.empty() || !PathExists(path)) {
    return absl::OkStatus();
  }
  return FieldError("INVALID_VALUE", "output_name",
                    absl::StrCat("output_name: ", path,
                                 " is there already; give another one"));
}

absl::StatusOr<SourceFiles> Engine::FilesOfJob(
    const JobSpec& spec, const ModelDirectory& model) const {
  SourceFiles files = model.files;
  ASSIGN_OR_RETURN(const auto adapter, CheckAdapter(spec, model.config));
  if (adapter.has_value()) Append(adapter->files, files);
  for (const std::string& path : spec.dataset) {
    ASSIGN_OR_RETURN(CheckedFile file, CheckDataFile(*roots_, "dataset", path));
    files.push_back(std::move(file));
  }
  uint64_t bytes = 0;
  for (const std::string& path : spec.validation_dataset) {
    ASSIGN_OR_RETURN(CheckedFile file,
                     CheckDataFile(*roots_, "validation_dataset", path));
    bytes += file.identity.size_bytes;
    files.push_back(std::move(file));
  }
  if (spec.validation_dataset.empty() || bytes > 0) return files;
  return FieldError(
      "INVALID_DATASET", "validation_dataset",
      absl::StrCat("validation_dataset: ", spec.validation_dataset[0],
                   ": the file is empty"));
}

absl::StatusOr<Engine::CheckedJob> Engine::CheckJob(
    const SubmitRequest& request) const {
  ASSIGN_OR_RETURN(JobFile file, ReadJobFile(request.text, request.file_name));
  if (pool_.device_count() == 0) {
    RETURN_IF_ERROR(file.status());
    return FieldError(absl::StatusCode::kFailedPrecondition,
                      "NO_HEALTHY_DEVICE", "",
                      "this server runs with --devices=none: no job can run");
  }
  ResolvePaths(&file);
  absl::StatusOr<ModelDirectory> model = absl::NotFoundError("no model");
  if (!file.spec().model_name_or_path.empty()) {
    model = CheckModel(file.spec());
    if (!model.ok()) file.AddFaultOf(model.status());
  }
  RETURN_IF_ERROR(file.status());
  auto job = CheckSpec(file.spec(), *model);
  if (!job.ok()) return file.Located(job.status());
  if (!file.spec().dtype.has_value() &&
      file.spec().resume_from_checkpoint.empty()) {
    const std::string what =
        DtypeWarning(*model, job->spec.dtype(), options_.device);
    if (!what.empty()) file.AddWarning(what);
  }
  job->warnings = file.warnings();
  return job;
}

absl::StatusOr<Engine::CheckedJob> Engine::CheckSpec(
    const JobSpec& located, const ModelDirectory& model) const {
  ASSIGN_OR_RETURN(JobSpec complete, CompleteAdapter(located, model.config));
  if (!complete.dtype.has_value()) complete.dtype = DtypeToGoOn(complete);
  if (complete.template_date.empty()) {
    complete.template_date = TemplateDateAt(absl::Now());
  }
  CheckedJob job{.spec = ResolveToFit(complete, model), .model = model.config};
  ASSIGN_OR_RETURN(job.files, FilesOfJob(complete, model));
  ASSIGN_OR_RETURN(job.start_step, CheckResume(job.spec, job.model));
  ASSIGN_OR_RETURN(const Plan plan, CheckPlan(job.spec, job.model));
  RETURN_IF_ERROR(CheckMemory(job.spec, job.model, plan, &job.needs));
  RETURN_IF_ERROR(
      CheckFreeDisk(job.spec, job.model, job.start_step, &job.needs));
  RETURN_IF_ERROR(CheckOutputName(job.spec.spec()));
  return job;
}

absl::StatusOr<SubmitResult> Engine::Submit(const SubmitRequest& request) {
  ASSIGN_OR_RETURN(
      const auto known,
      store_.FindRequest(request.principal, request.request_id, request.text));
  if (known.has_value()) {
    const auto file = ReadJobFile(request.text, request.file_name);
    if (!file.ok()) return SubmitResult{*known};
    return SubmitResult{*known, file->warnings()};
  }
  ASSIGN_OR_RETURN(const CheckedJob checked, CheckJob(request));
  if (!reserve_.held()) {
    return FieldError(
        absl::StatusCode::kResourceExhausted, "STORAGE_FULL", "",
        absl::StrCat("the disk of ", options_.state_dir,
                     " is full, or may not be written: the server takes no "
                     "job until it can hold ",
                     ByteText(kDiskReserveBytes), " in reserve again"));
  }
  NewJob job;
  job.text = request.text;
  job.resolved = checked.spec.ToJson();
  job.files = SourceFilesToJson(checked.files);
  job.output_name = checked.spec.spec().output_name;
  job.request_id = request.request_id;
  job.principal = request.principal;
  bool created = false;
  absl::StatusOr<JobRecord> record = store_.Create(job, &created);
  if (IsStoreRefusal(record.status()) &&
      ErrorReason(record.status()) != "QUOTA") {
    return StoreRefused(record.status());
  }
  RETURN_IF_ERROR(record.status());
  if (created) {
    // A daemon that stops between the two takes the job up when it starts.
    loop_
        .Post([this, job = *record, warnings = checked.warnings] {
          for (const std::string& warning : warnings) Warn(job, warning);
          AddToValidate(job.id);
          StartNext();
        })
        .IgnoreError();
  }
  return SubmitResult{*std::move(record), checked.warnings};
}

}  // namespace roundhouse
