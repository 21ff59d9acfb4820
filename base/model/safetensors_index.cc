#include "base/model/safetensors_index.h"

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/limits.h"
#include "base/model/json.h"
#include "base/status.h"

namespace roundhouse {
namespace {

using Json = nlohmann::json;

constexpr JsonLimits kIndexLimits = {.max_bytes = kMaxIndexBytes,
                                     .max_depth = kMaxJsonDepth,
                                     .max_keys = kMaxIndexKeys};

absl::Status Invalid(const std::string& path, absl::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", message));
}

absl::Status CheckFileName(const std::string& path, const std::string& tensor,
                           const std::string& file) {
  const std::string where =
      absl::StrCat("weight_map: ", QuoteForError(tensor), ": ");
  if (file.find('/') != std::string::npos ||
      file.find('\0') != std::string::npos) {
    return Invalid(path, absl::StrCat(where, QuoteForError(file),
                                      " is not a file of this directory"));
  }
  if (!absl::EndsWith(file, ".safetensors")) {
    return Invalid(path, absl::StrCat(where, QuoteForError(file),
                                      " is no .safetensors file"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::map<std::string, std::string>> ParseSafetensorsIndex(
    const std::string& json, const std::string& path) {
  RETURN_IF_ERROR(CheckJson(json, path, kIndexLimits));
  const Json root = Json::parse(json, nullptr, false);
  const auto weight_map = root.find("weight_map");
  if (!root.is_object() || weight_map == root.end() ||
      !weight_map->is_object() || weight_map->empty()) {
    return Invalid(path, "weight_map: expected an object naming tensors");
  }
  std::map<std::string, std::string> file_of_tensor;
  std::set<std::string> files;
  for (const auto& [tensor, file] : weight_map->items()) {
    if (!file.is_string()) {
      return Invalid(path, absl::StrCat("weight_map: ", QuoteForError(tensor),
                                        ": expected a file name"));
    }
    const std::string& name = file.get_ref<const std::string&>();
    RETURN_IF_ERROR(CheckFileName(path, tensor, name));
    files.insert(name);
    file_of_tensor[tensor] = name;
  }
  if (static_cast<int64_t>(files.size()) > kMaxModelShards) {
    return Invalid(path, absl::StrCat(files.size(), " shards, at most ",
                                      kMaxModelShards, " are read"));
  }
  return file_of_tensor;
}

std::string SafetensorsIndexJson(
    const std::map<std::string, std::string>& file_of_tensor,
    uint64_t total_size_bytes) {
  Json root;
  root["metadata"]["total_size"] = total_size_bytes;
  root["weight_map"] = file_of_tensor;
  return root.dump(2) + "\n";
}

std::string ShardFileName(int64_t shard, int64_t shard_count) {
  return absl::StrFormat("model-%05d-of-%05d.safetensors", shard + 1,
                         shard_count);
}

}  // namespace roundhouse
