#include "server/weights/manifest.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/files/sealed_json.h"
#include "base/model/directory.h"
#include "base/status.h"
#include "nlohmann/json.hpp"

namespace roundhouse {
namespace {

constexpr int kSealedVersion = 2;
constexpr int kVersionWithoutSeal = 1;

absl::Status Bad(const std::string& path, const std::string& why) {
  return absl::DataLossError(absl::StrCat(path, ": ", why));
}

// Throws what nlohmann::json throws.
CheckpointManifest FromJson(const nlohmann::json& json) {
  CheckpointManifest manifest;
  manifest.format_version = json.at("format_version").get<int>();
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
  return manifest;
}

absl::Status CheckShards(const CheckpointManifest& manifest,
                         const std::string& path) {
  std::set<std::string> names;
  for (const CheckpointShard& shard : manifest.shards) {
    const std::string& name = shard.file;
    const bool plain = !name.empty() && name != "." && name != ".." &&
                       name.find('/') == std::string::npos &&
                       name.find('\0') == std::string::npos;
    if (!plain && !IsTokenizerFile(name)) {
      return Bad(path, absl::StrCat("\"", name, "\" is no file name"));
    }
    if (!names.insert(name).second) {
      return Bad(path, absl::StrCat("\"", name, "\" is there twice"));
    }
  }
  return absl::OkStatus();
}

absl::Status Check(const CheckpointManifest& manifest,
                   const std::string& path) {
  if (manifest.step < 0 || manifest.shards.empty()) {
    return Bad(path, "no step or no shards");
  }
  const auto& scaler = manifest.loss_scaler;
  if ((manifest.dtype == DTypeName(DType::kF16)) != scaler.has_value() ||
      (scaler.has_value() && (!LossScaler::IsValid(*scaler) ||
                              scaler->skipped_steps > manifest.step))) {
    return Bad(path,
               "of fp16 there is a loss scaler's state, of no other dtype");
  }
  return CheckShards(manifest, path);
}

}  // namespace

const CheckpointShard* CheckpointManifest::Find(const std::string& file) const {
  for (const CheckpointShard& shard : shards) {
    if (shard.file == file) return &shard;
  }
  return nullptr;
}

std::string ManifestJson(const CheckpointManifest& manifest) {
  nlohmann::json shards = nlohmann::json::array();
  for (const CheckpointShard& shard : manifest.shards) {
    shards.push_back({{"file", shard.file},
                      {"bytes", shard.bytes},
                      {"sha256", shard.sha256}});
  }
  nlohmann::json json = {{"format_version", kSealedVersion},
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
  return SealJson(
      json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) +
      "\n");
}

absl::StatusOr<CheckpointManifest> ParseManifest(const std::string& text,
                                                 const std::string& path) {
  const Seal seal = CheckSeal(text);
  if (seal == Seal::kBroken) {
    return Bad(path, "its SHA-256 is not the one it was saved with");
  }
  CheckpointManifest manifest;
  try {
    manifest = FromJson(nlohmann::json::parse(text));
  } catch (const nlohmann::json::exception& error) {
    return Bad(path, error.what());
  }
  const int version = manifest.format_version;
  if (version != kSealedVersion && version != kVersionWithoutSeal) {
    return Bad(path, absl::StrCat("written by another version, ", version));
  }
  if (version == kSealedVersion && seal == Seal::kNone) {
    return Bad(path, "does not begin with its SHA-256");
  }
  RETURN_IF_ERROR(Check(manifest, path));
  return manifest;
}

}  // namespace roundhouse
