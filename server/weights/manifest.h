// checkpoint.json: what a checkpoint is of, and the hash of every file in it.
//
// Version 2 lists every file that is ever read and is sealed
// (base/files/sealed_json.h), so that no bit of a checkpoint can flip
// unnoticed. Version 1 lists files of tensors only, and has no seal; it is
// still read.
//
// Pure functions; thread-safe.
#ifndef ROUNDHOUSE_SERVER_WEIGHTS_MANIFEST_H_
#define ROUNDHOUSE_SERVER_WEIGHTS_MANIFEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/loss_scaler.h"

namespace roundhouse {

inline constexpr char kManifestName[] = "checkpoint.json";
inline constexpr uint64_t kMaxManifestBytes = uint64_t{16} << 20;

struct CheckpointShard {
  std::string file;  // name in the directory
  uint64_t bytes = 0;
  std::string sha256;
};

struct CheckpointManifest {
  int format_version = 2;
  int64_t step = 0;
  uint64_t seed = 0;
  std::string dtype;           // "fp32", "bf16", "fp16"
  std::string dataset_sha256;  // of the training tokens
  std::string resolved_spec;   // JSON
  double tokens_trained = 0;
  std::optional<LossScaler::State> loss_scaler;  // of fp16 only
  std::vector<CheckpointShard> shards;           // every file

  // Null: it does not list the file.
  const CheckpointShard* Find(const std::string& file) const;
};

// The text of version 2, sealed.
std::string ManifestJson(const CheckpointManifest& manifest);

// DATA_LOSS names `path`, where the text was, and what is wrong with it.
absl::StatusOr<CheckpointManifest> ParseManifest(const std::string& text,
                                                 const std::string& path);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_WEIGHTS_MANIFEST_H_
