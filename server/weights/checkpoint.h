// Checkpoints and exports on disk.
//
//   checkpoint-<step>/
//     model*.safetensors      compute weights: loads in transformers as it is
//     optimizer*.safetensors  fp32 masters and both moments; with an
//                             asynchronous optimizer the compute weights before
//                             the last update, too
//     config.json, tokenizer files, trainer_state.json
// with adapters, whose base is not saved again,
//     adapter_model.safetensors  loads in PEFT as it is
//     adapter_config.json        in config.json's place
// and in both
//     checkpoint.json         the manifest: step, seed, what it was trained on,
//                             with fp16 the loss scale, and every shard's bytes
//                             and SHA-256
//
// A directory is written under a temporary name and renamed when everything in
// it is on disk, so one that exists under its own name is whole.  A resumed job
// continues at step + 1: the order of batches and every random number follow
// from (seed, step).
//
// Blocking file access; thread-compatible.
#ifndef ROUNDHOUSE_SERVER_WEIGHTS_CHECKPOINT_H_
#define ROUNDHOUSE_SERVER_WEIGHTS_CHECKPOINT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/loss_scaler.h"
#include "server/weights/file_table.h"

namespace roundhouse {

struct CheckpointShard {
  std::string file;  // name in the directory
  uint64_t bytes = 0;
  std::string sha256;
};

struct CheckpointManifest {
  int64_t step = 0;
  uint64_t seed = 0;
  std::string dtype;           // "fp32", "bf16", "fp16"
  std::string dataset_sha256;  // of the training tokens
  std::string resolved_spec;   // JSON
  double tokens_trained = 0;
  std::optional<LossScaler::State> loss_scaler;  // of fp16 only
  std::vector<CheckpointShard> shards;
};

// The parts of a new directory.  Paths lie in TemporaryPath(plan).
struct DirectoryPlan {
  std::string final_path;
  // Where the directory is made, beside final_path; "": TemporaryName of it.
  std::string temporary_path;
  // What to do where final_path is there when all is written.
  bool replaces_existing = true;             // false: ALREADY_EXISTS
  std::string owner_uid;                     // "": of any job
  std::vector<FilePart> parts;               // written by the files worker
  std::map<std::string, std::string> texts;  // name -> content
  std::vector<std::string> copied_files;     // paths, copied by name
  uint64_t total_bytes = 0;
};

std::string TemporaryName(const std::string& final_path);
std::string TemporaryPath(const DirectoryPlan& plan);

// Makes the empty temporary directory, removing one left by a crash.
// RESOURCE_EXHAUSTED when the disk has not `total_bytes` free.
absl::Status BeginDirectory(const DirectoryPlan& plan);

// After the files worker is done: writes texts and copies, syncs everything,
// renames, syncs the parent.  An existing directory of that name is replaced,
// or kept: ALREADY_EXISTS; with an owner_uid it is kept unless it is of that
// job (output_owner.h).
absl::Status FinishDirectory(const DirectoryPlan& plan);

// Removes what BeginDirectory and the files worker left.
void AbandonDirectory(const DirectoryPlan& plan);

std::string ManifestJson(const CheckpointManifest& manifest);

// Reads the manifest; with `verify`, also hashes every shard.  DATA_LOSS names
// the file and what is wrong with it.
absl::StatusOr<CheckpointManifest> ReadCheckpoint(const std::string& path,
                                                  bool verify);

// What to load to go on from a checkpoint, which is of `step`: weights, masters
// and moments of what trains.
// DATA_LOSS when a tensor is missing or of another shape.
absl::StatusOr<std::vector<FilePart>> ResumeParts(const std::string& path,
                                                  int64_t step,
                                                  const TrainingState& state);

// Whether a job that trains this in `dtype` can go on from a checkpoint, by its
// manifest, which it answers, and its files' headers.  INVALID_ARGUMENT
// names the dtype, or the tensor that differs or that only one of them has;
// DATA_LOSS as ReadCheckpoint.
absl::StatusOr<CheckpointManifest> CheckResumable(const std::string& path,
                                                  const ModelConfig& model,
                                                  const AdapterConfig& adapter,
                                                  DType dtype);

// Steps of the checkpoints in `directory`, ascending.
std::vector<int64_t> ListCheckpointSteps(const std::string& directory);
std::string CheckpointPath(const std::string& directory, int64_t step);

// Removes the oldest beyond the newest `kept`, never that of `best_step`.
// INTERNAL names the first that could not be removed; the others are.
// REQUIRES: kept > 0.
absl::Status RemoveOldCheckpoints(
    const std::string& directory, int64_t kept,
    std::optional<int64_t> best_step = std::nullopt);

// Renames it to <path>.corrupt, so that it is neither used nor lost.
absl::Status QuarantineCheckpoint(const std::string& path);

// Writes `content` to `path`: temporary name, fsync, rename, fsync of the
// directory.  RESOURCE_EXHAUSTED on a full disk, naming the path.
absl::Status WriteFileAtomically(const std::string& path,
                                 const std::string& content);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_WEIGHTS_CHECKPOINT_H_
