// model.safetensors.index.json: which shard holds which tensor.
//
//   {"metadata": {"total_size": 123}, "weight_map": {"<tensor>": "<file>"}}
#ifndef ROUNDHOUSE_BASE_MODEL_SAFETENSORS_INDEX_H_
#define ROUNDHOUSE_BASE_MODEL_SAFETENSORS_INDEX_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"

namespace roundhouse {

// Tensor name to file name.  Every file is a plain name in the index's own
// directory: a path is refused.  INVALID_ARGUMENT naming `path` and tensor.
absl::StatusOr<std::map<std::string, std::string>> ParseSafetensorsIndex(
    const std::string& json, const std::string& path);

// The inverse, as transformers writes it.
std::string SafetensorsIndexJson(
    const std::map<std::string, std::string>& file_of_tensor,
    uint64_t total_size_bytes);

// "model-00001-of-00003.safetensors"; `shard` counts from 0.
std::string ShardFileName(int64_t shard, int64_t shard_count);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_MODEL_SAFETENSORS_INDEX_H_
