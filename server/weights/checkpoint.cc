#include "server/weights/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/kill_point.h"
#include "base/model/safetensors.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "server/weights/output_owner.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;
constexpr int kManifestVersion = 1;
constexpr char kPrefix[] = "checkpoint-";

absl::Status FileError(const std::string& what, const std::string& path,
                       int error) {
  const std::string text =
      absl::StrCat(what, " ", path, ": ", std::strerror(error));
  return error == ENOSPC || error == EDQUOT || error == EFBIG
             ? absl::ResourceExhaustedError(text)
             : absl::InternalError(text);
}

absl::Status SyncPath(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return FileError("opening", path, errno);
  const int result = fsync(fd);
  const int error = errno;
  close(fd);
  return result == 0 ? absl::OkStatus() : FileError("syncing", path, error);
}

absl::Status WriteAll(int fd, const std::string& content,
                      const std::string& path) {
  size_t done = 0;
  while (done < content.size()) {
    const ssize_t n = write(fd, content.data() + done, content.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError("writing", path, errno);
    done += static_cast<size_t>(n);
  }
  return fsync(fd) == 0 ? absl::OkStatus() : FileError("syncing", path, errno);
}

absl::Status WriteSynced(const std::string& path, const std::string& content) {
  const int fd =
      open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
  if (fd < 0) return FileError("creating", path, errno);
  const absl::Status status = WriteAll(fd, content, path);
  close(fd);
  return status;
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": unreadable"));
  return text.str();
}

absl::StatusOr<std::string> HashFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return absl::DataLossError(absl::StrCat(path, ": ", std::strerror(errno)));
  }
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  EVP_DigestInit_ex(context, EVP_sha256(), nullptr);
  std::vector<char> buffer(1 << 20);
  ssize_t got;
  while ((got = read(fd, buffer.data(), buffer.size())) > 0) {
    EVP_DigestUpdate(context, buffer.data(), static_cast<size_t>(got));
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int bytes = 0;
  EVP_DigestFinal_ex(context, digest, &bytes);
  EVP_MD_CTX_free(context);
  close(fd);
  if (got < 0) return absl::DataLossError(path + ": read error");
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<char*>(digest), bytes));
}

}  // namespace

std::string TemporaryName(const std::string& final_path) {
  const fs::path path(final_path);
  return (path.parent_path() / ("tmp-" + path.filename().string())).string();
}

std::string TemporaryPath(const DirectoryPlan& plan) {
  return plan.temporary_path.empty() ? TemporaryName(plan.final_path)
                                     : plan.temporary_path;
}

absl::Status BeginDirectory(const DirectoryPlan& plan) {
  const std::string temporary = TemporaryPath(plan);
  std::error_code error;
  fs::remove_all(temporary, error);
  fs::create_directories(temporary, error);
  if (error) return FileError("creating", temporary, error.value());
  const fs::space_info space = fs::space(temporary, error);
  if (error) return FileError("looking at", temporary, error.value());
  if (space.available < plan.total_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("saving ", plan.final_path, " needs ", plan.total_bytes,
                     " bytes of disk, ", space.available, " are free"));
  }
  return absl::OkStatus();
}

absl::Status FinishDirectory(const DirectoryPlan& plan) {
  const std::string temporary = TemporaryPath(plan);
  for (const std::string& source : plan.copied_files) {
    ASSIGN_OR_RETURN(const std::string content, ReadFile(source));
    RETURN_IF_ERROR(WriteSynced(
        absl::StrCat(temporary, "/", fs::path(source).filename().string()),
        content));
  }
  for (const auto& [name, content] : plan.texts) {
    RETURN_IF_ERROR(WriteSynced(absl::StrCat(temporary, "/", name), content));
  }
  KillPoint("daemon.save.before_fsync");
  RETURN_IF_ERROR(SyncPath(temporary));
  KillPoint("daemon.save.before_rename");
  // An older directory of that name is swapped out, not removed first: at no
  // moment is there none.
  const bool swap = plan.replaces_existing && fs::exists(plan.final_path) &&
                    (plan.owner_uid.empty() ||
                     plan.owner_uid == OutputOwner(plan.final_path));
  if (renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, plan.final_path.c_str(),
                swap ? RENAME_EXCHANGE : RENAME_NOREPLACE) != 0) {
    if (errno == EEXIST) {
      return absl::AlreadyExistsError(
          absl::StrCat(plan.final_path, ": is there already"));
    }
    return FileError("renaming", temporary, errno);
  }
  KillPoint("daemon.save.after_rename");
  if (swap) AbandonDirectory(plan);
  return SyncPath(fs::path(plan.final_path).parent_path().string());
}

void AbandonDirectory(const DirectoryPlan& plan) {
  std::error_code error;
  fs::remove_all(TemporaryPath(plan), error);
}

std::string ManifestJson(const CheckpointManifest& manifest) {
  nlohmann::json shards = nlohmann::json::array();
  for (const CheckpointShard& shard : manifest.shards) {
    shards.push_back({{"file", shard.file},
                      {"bytes", shard.bytes},
                      {"sha256", shard.sha256}});
  }
  nlohmann::json json = {{"format_version", kManifestVersion},
                         {"step", manifest.step},
                         {"seed", manifest.seed},
                         {"dtype", manifest.dtype},
                         {"dataset_sha256", manifest.dataset_sha256},
                         {"tokens_trained", manifest.tokens_trained},
                         {"resolved_spec", manifest.resolved_spec},
                         {"shards", shards}};
  if (const auto& scaler = manifest.loss_scaler) {
    json["loss_scaler"] = {{"scale", scaler->scale},
                           {"growth_tracker", scaler->growth_tracker},
                           {"skipped_steps", scaler->skipped_steps}};
  }
  return json.dump(2) + "\n";
}

namespace {

absl::StatusOr<CheckpointManifest> ParseManifest(const std::string& text,
                                                 const std::string& path) {
  CheckpointManifest manifest;
  try {
    const auto json = nlohmann::json::parse(text);
    if (json.at("format_version").get<int>() != kManifestVersion) {
      return absl::DataLossError(path + ": written by another version");
    }
    manifest.step = json.at("step").get<int64_t>();
    manifest.seed = json.at("seed").get<uint64_t>();
    manifest.dtype = json.at("dtype").get<std::string>();
    manifest.dataset_sha256 = json.at("dataset_sha256").get<std::string>();
    manifest.tokens_trained = json.at("tokens_trained").get<double>();
    manifest.resolved_spec = json.at("resolved_spec").get<std::string>();
    if (json.contains("loss_scaler")) {
      const auto& scaler = json["loss_scaler"];
      manifest.loss_scaler = {scaler.at("scale").get<float>(),
                              scaler.at("growth_tracker").get<int64_t>(),
                              scaler.at("skipped_steps").get<int64_t>()};
    }
    for (const auto& shard : json.at("shards")) {
      manifest.shards.push_back({shard.at("file").get<std::string>(),
                                 shard.at("bytes").get<uint64_t>(),
                                 shard.at("sha256").get<std::string>()});
    }
  } catch (const nlohmann::json::exception& error) {
    return absl::DataLossError(absl::StrCat(path, ": ", error.what()));
  }
  if (manifest.step < 0 || manifest.shards.empty()) {
    return absl::DataLossError(path + ": no step or no shards");
  }
  const auto& scaler = manifest.loss_scaler;
  if ((manifest.dtype == DTypeName(DType::kF16)) != scaler.has_value() ||
      (scaler.has_value() && (!LossScaler::IsValid(*scaler) ||
                              scaler->skipped_steps > manifest.step))) {
    return absl::DataLossError(
        path + ": of fp16 there is a loss scaler's state, of no other dtype");
  }
  return manifest;
}

absl::Status CheckShard(const std::string& directory,
                        const CheckpointShard& shard, bool verify) {
  if (shard.file.find('/') != std::string::npos) {
    return absl::DataLossError(absl::StrCat(directory, "/checkpoint.json: \"",
                                            shard.file, "\" is no file name"));
  }
  const std::string path = absl::StrCat(directory, "/", shard.file);
  std::error_code error;
  const uint64_t bytes = fs::file_size(path, error);
  if (error || bytes != shard.bytes) {
    return absl::DataLossError(absl::StrCat(
        path, ": ",
        error ? std::string("missing") : absl::StrCat(bytes, " bytes"), ", ",
        shard.bytes, " bytes expected"));
  }
  if (!verify) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string sha256, HashFile(path));
  if (sha256 != shard.sha256) {
    return absl::DataLossError(
        absl::StrCat(path, ": its SHA-256 is not the one it was saved with"));
  }
  return absl::OkStatus();
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
    const std::string& path) {
  ASSIGN_OR_RETURN(const CheckpointManifest manifest,
                   ReadCheckpoint(path, false));
  std::map<std::string, Found> tensors;
  for (const CheckpointShard& shard : manifest.shards) {
    const std::string file = absl::StrCat(path, "/", shard.file);
    const auto header = ReadSafetensorsHeader(AnyFiles(), file);
    if (!header.ok()) {
      return absl::DataLossError(std::string(header.status().message()));
    }
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

absl::StatusOr<CheckpointManifest> ReadCheckpoint(const std::string& path,
                                                  bool verify) {
  const std::string manifest_path = path + "/checkpoint.json";
  const auto text = ReadFile(manifest_path);
  if (!text.ok()) {
    return absl::DataLossError(std::string(text.status().message()));
  }
  ASSIGN_OR_RETURN(CheckpointManifest manifest,
                   ParseManifest(*text, manifest_path));
  for (const CheckpointShard& shard : manifest.shards) {
    RETURN_IF_ERROR(CheckShard(path, shard, verify));
  }
  return manifest;
}

absl::StatusOr<std::vector<FilePart>> ResumeParts(const std::string& path,
                                                  int64_t step,
                                                  const TrainingState& state) {
  ASSIGN_OR_RETURN(const auto found, FindTensors(path));
  std::map<std::string, FilePart> parts;
  auto add = [&](const std::string& name, const ParameterSpec& spec,
                 uint64_t base, DType dtype) -> absl::Status {
    const std::string problem =
        TensorProblem(path, found, name, spec.shape, dtype);
    if (!problem.empty()) return absl::DataLossError(problem);
    const auto entry = found.find(name);
    wire::FileTensor tensor = {};
    tensor.file_offset = entry->second.tensor.begin;
    tensor.element_count = static_cast<uint64_t>(spec.element_count);
    tensor.file_dtype = static_cast<uint32_t>(dtype);
    tensor.first_dtype = static_cast<uint32_t>(dtype);
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
    for (const ParameterSpec& spec : state.units()[i].parameters) {
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

absl::StatusOr<CheckpointManifest> CheckResumable(const std::string& path,
                                                  const ModelConfig& model,
                                                  const AdapterConfig& adapter,
                                                  DType dtype) {
  ASSIGN_OR_RETURN(CheckpointManifest manifest, ReadCheckpoint(path, false));
  if (manifest.dtype != DTypeName(dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": its dtype is ", manifest.dtype, ", the job's is ",
                     DTypeName(dtype)));
  }
  ASSIGN_OR_RETURN(auto tensors, FindTensors(path));
  const DType trained = adapter.present() ? DType::kF32 : dtype;
  const std::vector<UnitSpec> units = TrainingUnits(model, adapter);
  for (size_t unit = 0; unit < units.size(); ++unit) {
    if (!IsTrainable(model, adapter, static_cast<int64_t>(unit))) continue;
    for (const ParameterSpec& spec : units[unit].parameters) {
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

std::vector<int64_t> ListCheckpointSteps(const std::string& directory) {
  std::set<int64_t> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    int64_t step = 0;
    if (absl::StartsWith(name, kPrefix) &&
        absl::SimpleAtoi(name.substr(sizeof(kPrefix) - 1), &step)) {
      steps.insert(step);
    }
  }
  return {steps.begin(), steps.end()};
}

std::string CheckpointPath(const std::string& directory, int64_t step) {
  return absl::StrCat(directory, "/", kPrefix, step);
}

absl::Status RemoveOldCheckpoints(const std::string& directory, int64_t kept,
                                  std::optional<int64_t> best_step) {
  const std::vector<int64_t> steps = ListCheckpointSteps(directory);
  const auto surplus = static_cast<int64_t>(steps.size()) - kept;
  absl::Status first;
  for (int64_t i = 0; i < surplus; ++i) {
    if (steps[i] == best_step) continue;
    std::error_code error;
    fs::remove_all(CheckpointPath(directory, steps[i]), error);
    if (error && first.ok()) {
      first = absl::InternalError(
          absl::StrCat("old checkpoint of step ", steps[i],
                       " could not be removed: ", error.message()));
    }
  }
  return first;
}

absl::Status QuarantineCheckpoint(const std::string& path) {
  std::error_code error;
  fs::remove_all(path + ".corrupt", error);
  fs::rename(path, path + ".corrupt", error);
  if (error) return FileError("renaming", path, error.value());
  return SyncPath(fs::path(path).parent_path().string());
}

absl::Status WriteFileAtomically(const std::string& path,
                                 const std::string& content) {
  const std::string temporary = path + ".tmp";
  RETURN_IF_ERROR(WriteSynced(temporary, content));
  if (rename(temporary.c_str(), path.c_str()) != 0) {
    return FileError("renaming", temporary, errno);
  }
  return SyncPath(fs::path(path).parent_path().string());
}

}  // namespace roundhouse
