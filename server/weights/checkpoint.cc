#include "server/weights/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/byte_text.h"
#include "base/files/durable_file.h"
#include "base/files/remove_tree.h"
#include "base/kill_point.h"
#include "base/log.h"
#include "base/model/safetensors.h"
#include "base/path_exists.h"
#include "base/status.h"
#include "server/weights/output_owner.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;
constexpr char kPrefix[] = "checkpoint-";

// Files of a model's directory.
absl::StatusOr<std::string> ReadSource(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": unreadable"));
  return text.str();
}

// What keeps a checkpoint's file from being read; a disk that fails (INTERNAL)
// or a shortage says nothing of the checkpoint.
absl::Status Unreadable(const absl::Status& status) {
  if (absl::IsUnavailable(status) || absl::IsInternal(status)) return status;
  return absl::DataLossError(std::string(status.message()));
}

}  // namespace

std::string TemporaryName(const std::string& final_path) {
  const fs::path path(final_path);
  return (path.parent_path() / (kTemporaryPrefix + path.filename().string()))
      .string();
}

std::string TemporaryPath(const DirectoryPlan& plan) {
  return TemporaryName(plan.final_path);
}

absl::Status BeginDirectory(const DirectoryPlan& plan) {
  const std::string temporary = TemporaryPath(plan);
  RETURN_IF_ERROR(RemoveTree(plan.sites.remove, temporary));
  RETURN_IF_ERROR(MakeFolderDurably(plan.sites.folder, temporary));
  std::error_code error;
  const fs::space_info space = fs::space(temporary, error);
  if (error) return FileError("looking at", temporary, error.value());
  const uint64_t needed = plan.total_bytes + plan.left_bytes;
  if (space.available < needed) {
    return absl::ResourceExhaustedError(
        absl::StrCat("saving ", plan.final_path, " needs ", ByteText(needed),
                     " of disk, ", ByteText(space.available), " are free"));
  }
  return absl::OkStatus();
}

absl::Status FinishDirectory(const DirectoryPlan& plan) {
  const std::string temporary = TemporaryPath(plan);
  const std::string templates =
      absl::StrCat(temporary, "/", kChatTemplatesFolder);
  bool has_templates = false;
  std::map<std::string, CheckpointShard> written;
  auto write = [&](const std::string& name,
                   const std::string& content) -> absl::Status {
    if (absl::StrContains(name, '/') && !has_templates) {
      RETURN_IF_ERROR(MakeFolderDurably(plan.sites.folder, templates));
      has_templates = true;
    }
    written[name] = {name, content.size(), Sha256Of(content)};
    return WriteNewFile(plan.sites.text, absl::StrCat(temporary, "/", name),
                        content);
  };
  for (const std::string& source : plan.copied_files) {
    ASSIGN_OR_RETURN(const std::string content, ReadSource(source));
    RETURN_IF_ERROR(write(TokenizerFileName(source), content));
  }
  for (const auto& [name, content] : plan.texts) {
    RETURN_IF_ERROR(write(name, content));
  }
  if (plan.manifest.has_value()) {
    CheckpointManifest manifest = *plan.manifest;
    for (auto& [name, file] : written) manifest.shards.push_back(file);
    RETURN_IF_ERROR(WriteNewFile(kCheckpointManifest,
                                 absl::StrCat(temporary, "/", kManifestName),
                                 ManifestJson(manifest)));
  }
  KillPoint("daemon.save.before_fsync");
  if (has_templates) {
    RETURN_IF_ERROR(SyncFolder(plan.sites.rename, templates));
  }
  RETURN_IF_ERROR(SyncFolder(plan.sites.rename, temporary));
  KillPoint("daemon.save.before_rename");
  // An older directory of that name is swapped out, not removed first: at no
  // moment is there none.
  const bool swap = PathExists(plan.final_path) &&
                    (plan.owner_uid.empty() ||
                     plan.owner_uid == ReadOutputMark(plan.final_path).job_uid);
  RETURN_IF_ERROR(
      RenameDurably(plan.sites.rename, temporary, plan.final_path,
                    swap ? RenameMode::kExchange : RenameMode::kKeep));
  KillPoint("daemon.save.after_rename");
  if (swap) AbandonDirectory(plan);
  return absl::OkStatus();
}

void AbandonDirectory(const DirectoryPlan& plan) {
  const absl::Status removed =
      RemoveTree(plan.sites.remove, TemporaryPath(plan));
  if (!removed.ok()) RH_LOG(kWarning) << removed.message();
}

namespace {

absl::StatusOr<InputFile> OpenShard(const FileOpener& files,
                                    const std::string& directory,
                                    const CheckpointShard& shard) {
  const std::string path = absl::StrCat(directory, "/", shard.file);
  auto file = files.Open(path);
  if (file.ok() && file->size_bytes() == shard.bytes) return file;
  if (absl::IsUnavailable(file.status()) || absl::IsInternal(file.status())) {
    return file.status();
  }
  return absl::DataLossError(absl::StrCat(
      file.ok() ? absl::StrCat(path, ": ", file->size_bytes(), " bytes")
      : absl::IsNotFound(file.status()) ? absl::StrCat(path, ": missing")
                                        : std::string(file.status().message()),
      ", ", shard.bytes, " bytes expected"));
}

absl::StatusOr<std::string> ReadText(const FileOpener& files,
                                     const std::string& path,
                                     uint64_t max_bytes) {
  ASSIGN_OR_RETURN(const InputFile file, files.Open(path));
  return ReadWholeFile(kCheckpointRead, file.descriptor(), path, max_bytes);
}

struct Found {
  std::string path;
  CheckedFile file;
  SafetensorsTensor tensor;
};

std::string TypeText(FileDType dtype, const std::vector<int64_t>& shape) {
  return absl::StrCat(FileDTypeName(dtype), " [", absl::StrJoin(shape, ", "),
                      "]");
}

absl::StatusOr<std::map<std::string, Found>> FindTensors(
    const FileOpener& files, const std::string& path) {
  ASSIGN_OR_RETURN(const CheckpointManifest manifest,
                   ReadCheckpoint(files, path));
  std::map<std::string, Found> tensors;
  for (const CheckpointShard& shard : manifest.shards) {
    if (!absl::EndsWith(shard.file, ".safetensors")) continue;
    const std::string file = absl::StrCat(path, "/", shard.file);
    const auto header = ReadSafetensorsHeader(files, file);
    if (!header.ok()) return Unreadable(header.status());
    for (const auto& [name, tensor] : header->tensors) {
      tensors[name] = {file, header->file, tensor};
    }
  }
  return tensors;
}

// What a checkpoint keeps of one parameter: suffix of the name, dtype.
std::vector<std::pair<std::string, DType>> KeptOf(DType dtype) {
  return {{"", dtype},
          {".master", DType::kF32},
          {".exp_avg", DType::kF32},
          {".exp_avg_sq", DType::kF32}};
}

// "" when `name` is there with that shape and type.
std::string TensorProblem(const std::string& path,
                          const std::map<std::string, Found>& tensors,
                          const std::string& name,
                          const std::vector<int64_t>& shape, DType dtype) {
  const auto entry = tensors.find(name);
  if (entry == tensors.end()) {
    return absl::StrCat(path, ": tensor ", name, " is missing");
  }
  const SafetensorsTensor& found = entry->second.tensor;
  if (found.shape == shape && found.dtype == ToFileDType(dtype)) return "";
  return absl::StrCat(entry->second.path, ": tensor ", name, ": ",
                      TypeText(found.dtype, found.shape), " found, ",
                      TypeText(ToFileDType(dtype), shape),
                      " expected by the job");
}

}  // namespace

absl::Status VerifyCheckpointFile(const FileOpener& files,
                                  const std::string& path,
                                  const CheckpointShard& file) {
  ASSIGN_OR_RETURN(const InputFile opened, OpenShard(files, path, file));
  const std::string name = absl::StrCat(path, "/", file.file);
  const auto hash = HashFile(kCheckpointRead, opened.descriptor(), name);
  if (!hash.ok()) return Unreadable(hash.status());
  if (hash->bytes == file.bytes && hash->sha256 == file.sha256) {
    return absl::OkStatus();
  }
  return absl::DataLossError(
      absl::StrCat(name, ": its SHA-256 is not the one it was saved with"));
}

namespace {

// With a look at each of its files.
absl::StatusOr<CheckpointManifest> ReadManifest(
    const FileOpener& files, const std::string& path,
    const std::function<absl::Status(const CheckpointShard&)>& look) {
  const std::string name = absl::StrCat(path, "/", kManifestName);
  const auto text = ReadText(files, name, kMaxManifestBytes);
  if (!text.ok()) return Unreadable(text.status());
  ASSIGN_OR_RETURN(CheckpointManifest manifest, ParseManifest(*text, name));
  const std::optional<int64_t> step = CheckpointStepOf(path);
  if (step.has_value() && *step != manifest.step) {
    return absl::DataLossError(absl::StrCat(
        name, ": is of step ", manifest.step, ", its directory of ", *step));
  }
  for (const CheckpointShard& shard : manifest.shards) {
    RETURN_IF_ERROR(look(shard));
  }
  return manifest;
}

}  // namespace

absl::StatusOr<CheckpointManifest> ReadCheckpoint(const FileOpener& files,
                                                  const std::string& path) {
  return ReadManifest(files, path, [&](const CheckpointShard& shard) {
    return OpenShard(files, path, shard).status();
  });
}

absl::StatusOr<CheckpointManifest> VerifyCheckpoint(const FileOpener& files,
                                                    const std::string& path) {
  return ReadManifest(files, path, [&](const CheckpointShard& shard) {
    return VerifyCheckpointFile(files, path, shard);
  });
}

absl::StatusOr<std::string> CheckpointText(const FileOpener& files,
                                           const std::string& path,
                                           const CheckpointManifest& manifest,
                                           const std::string& file) {
  const CheckpointShard* const shard = manifest.Find(file);
  const bool listed = manifest.format_version > 1;
  if (listed && shard == nullptr) return std::string();
  const std::string name = absl::StrCat(path, "/", file);
  auto text = ReadText(files, name, kMaxTextBytes);
  if (!listed && absl::IsNotFound(text.status())) return std::string();
  if (!text.ok()) return Unreadable(text.status());
  if (!listed || Sha256Of(*text) == shard->sha256) return text;
  return absl::DataLossError(
      absl::StrCat(name, ": its SHA-256 is not the one it was saved with"));
}

absl::StatusOr<std::vector<FilePart>> ResumeParts(const FileOpener& files,
                                                  const std::string& path,
                                                  int64_t step,
                                                  const TrainingState& state) {
  ASSIGN_OR_RETURN(const auto found, FindTensors(files, path));
  std::map<std::string, FilePart> parts;
  auto add = [&](const std::string& name, const StoredTensor& spec,
                 uint64_t base, DType dtype) -> absl::Status {
    const std::string problem =
        TensorProblem(path, found, name, spec.shape, dtype);
    if (!problem.empty()) return absl::DataLossError(problem);
    const auto entry = found.find(name);
    wire::FileTensor tensor = {};
    tensor.file_offset = entry->second.tensor.begin;
    tensor.element_count = static_cast<uint64_t>(spec.element_count);
    tensor.file_dtype = dtype;
    tensor.first_dtype = dtype;
    tensor.first_offset =
        base +
        static_cast<uint64_t>(spec.unit_offset_elements) * DTypeBytes(dtype);
    FilePart& part = parts[entry->second.path];
    part.ReadAs(entry->second.file);
    part.tensors.push_back(tensor);
    return absl::OkStatus();
  };
  for (size_t i = 0; i < state.units().size(); ++i) {
    const int unit = static_cast<int>(i);
    if (!state.trainable(unit)) continue;
    const wire::UnitLayout& layout = state.layout(unit);
    for (const StoredTensor& spec : StoredTensors(state.units()[i])) {
      const DType dtype = state.dtype(unit);
      RETURN_IF_ERROR(
          add(spec.name, spec, state.Weights(unit, step).offset, dtype));
      if (state.options().stale) {
        // A synchronous job's checkpoint has the newest weights only.
        const std::string previous = spec.name + kPreviousSuffix;
        RETURN_IF_ERROR(add(found.count(previous) != 0 ? previous : spec.name,
                            spec, state.Weights(unit, step - 1).offset, dtype));
      }
      RETURN_IF_ERROR(
          add(spec.name + ".master", spec, layout.master_offset, DType::kF32));
      RETURN_IF_ERROR(add(spec.name + ".exp_avg", spec, layout.exp_avg_offset,
                          DType::kF32));
      RETURN_IF_ERROR(add(spec.name + ".exp_avg_sq", spec,
                          layout.exp_avg_sq_offset, DType::kF32));
    }
  }
  std::vector<FilePart> ordered;
  for (auto& [name, part] : parts) ordered.push_back(std::move(part));
  return ordered;
}

absl::StatusOr<CheckpointManifest> CheckResumable(const FileOpener& files,
                                                  const std::string& path,
                                                  const ModelConfig& model,
                                                  const AdapterConfig& adapter,
                                                  DType dtype) {
  ASSIGN_OR_RETURN(CheckpointManifest manifest, ReadCheckpoint(files, path));
  if (manifest.dtype != DTypeName(dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": its dtype is ", manifest.dtype, ", the job's is ",
                     DTypeName(dtype)));
  }
  ASSIGN_OR_RETURN(auto tensors, FindTensors(files, path));
  const DType trained = adapter.present() ? DType::kF32 : dtype;
  const std::vector<UnitSpec> units = TrainingUnits(model, adapter);
  for (size_t unit = 0; unit < units.size(); ++unit) {
    if (!IsTrainable(model, adapter, static_cast<int64_t>(unit))) continue;
    for (const StoredTensor& spec : StoredTensors(units[unit])) {
      for (const auto& [suffix, kept] : KeptOf(trained)) {
        const std::string name = spec.name + suffix;
        const std::string problem =
            TensorProblem(path, tensors, name, spec.shape, kept);
        if (!problem.empty()) return absl::InvalidArgumentError(problem);
        tensors.erase(name);
      }
      tensors.erase(spec.name + kPreviousSuffix);
    }
  }
  if (tensors.empty()) return manifest;
  return absl::InvalidArgumentError(
      absl::StrCat(tensors.begin()->second.path, ": tensor ",
                   tensors.begin()->first, " is none of the job's model"));
}

absl::StatusOr<std::vector<int64_t>> FindCheckpointSteps(
    const std::string& directory) {
  std::set<int64_t> steps;
  std::error_code error;
  for (auto entry = fs::directory_iterator(directory, error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const auto step = CheckpointStepOf(entry->path().string());
    if (step.has_value()) steps.insert(*step);
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    return absl::InternalError(
        absl::StrCat(directory, ": can't be listed: ", error.message()));
  }
  return std::vector<int64_t>(steps.begin(), steps.end());
}

std::vector<int64_t> ListCheckpointSteps(const std::string& directory) {
  return FindCheckpointSteps(directory).value_or(std::vector<int64_t>());
}

std::string CheckpointPath(const std::string& directory, int64_t step) {
  return absl::StrCat(directory, "/", kPrefix, step);
}

std::optional<int64_t> CheckpointStepOf(const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  int64_t step = 0;
  if (absl::StartsWith(name, kPrefix) &&
      absl::SimpleAtoi(name.substr(sizeof(kPrefix) - 1), &step) &&
      name == absl::StrCat(kPrefix, step)) {
    return step;
  }
  return std::nullopt;
}

namespace {

// Under another name first: what is left of one that is half removed is no
// checkpoint.
absl::Status RemoveCheckpoint(const std::string& path) {
  const std::string temporary = TemporaryName(path);
  RETURN_IF_ERROR(RemoveTree(kCheckpointRemove, temporary));
  RETURN_IF_ERROR(
      RenameDurably(kCheckpointRemove, path, temporary, RenameMode::kKeep));
  return RemoveTree(kCheckpointRemove, temporary);
}

}  // namespace

absl::Status RemoveOldCheckpoints(const std::string& directory, int64_t kept,
                                  std::optional<int64_t> best_step,
                                  int64_t newest_step) {
  std::vector<int64_t> steps = ListCheckpointSteps(directory);
  std::erase_if(steps, [&](int64_t step) { return step > newest_step; });
  const auto surplus = static_cast<int64_t>(steps.size()) - kept;
  if (surplus <= 0) return absl::OkStatus();
  const absl::Status newest =
      VerifyCheckpoint(AnyFiles(), CheckpointPath(directory, steps.back()))
          .status();
  if (!newest.ok()) {
    return absl::DataLossError(
        absl::StrCat("older checkpoints are kept, the newest is not good: ",
                     std::string(newest.message())));
  }
  absl::Status first;
  for (int64_t i = 0; i < surplus; ++i) {
    if (steps[i] == best_step) continue;
    const absl::Status removed =
        RemoveCheckpoint(CheckpointPath(directory, steps[i]));
    if (first.ok()) first = removed;
  }
  return first;
}

absl::Status QuarantineCheckpoint(const std::string& path) {
  RETURN_IF_ERROR(RemoveTree(kCheckpointQuarantine, path + ".corrupt"));
  RETURN_IF_ERROR(RenameDurably(kCheckpointQuarantine, path, path + ".corrupt",
                                RenameMode::kReplace));
  KillPoint("daemon.quarantine.after_rename");
  return absl::OkStatus();
}

}  // namespace roundhouse
