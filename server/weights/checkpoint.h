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
//     checkpoint.json         the manifest (manifest.h): step, seed, what it
//     was
//                             trained on, with fp16 the loss scale, and bytes
//                             and SHA-256 of every file, itself included
// Other files that somebody puts there are never read.
//
// A directory is written under a temporary name and renamed when everything in
// it is on disk, so one that exists under its own name is whole; what it is the
// checkpoint of is its name's step, which the manifest repeats.  A resumed job
// continues at step + 1: the order of batches and every random number follow
// from (seed, step).
//
// Blocking file access; thread-compatible.
#ifndef ROUNDHOUSE_SERVER_WEIGHTS_CHECKPOINT_H_
#define ROUNDHOUSE_SERVER_WEIGHTS_CHECKPOINT_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/files/file_site.h"
#include "base/model/input_file.h"
#include "server/weights/file_table.h"
#include "server/weights/manifest.h"

namespace roundhouse {

// At which sites a directory is written.
struct DirectorySites {
  FileSite folder = kOutputFolder;
  FileSite text = kOutputText;
  FileSite rename = kOutputRename;
  FileSite remove = kOutputRemove;
};

// The parts of a new directory.  Paths lie in TemporaryPath(plan).
struct DirectoryPlan {
  std::string final_path;
  std::string owner_uid;        // "": of any job
  std::vector<FilePart> parts;  // written by the files worker
  // Fills in `parts` and `total_bytes` first of all, off the loop, or neither
  // where it fails; null: they are there.
  std::function<absl::Status(DirectoryPlan&)> add_parts;
  std::map<std::string, std::string> texts;  // name -> content
  std::vector<std::string> copied_files;  // paths, copied by TokenizerFileName
  // The manifest of a checkpoint, with what the files worker wrote;
  // FinishDirectory adds the other files and writes it last.
  std::optional<CheckpointManifest> manifest;
  DirectorySites sites;
  uint64_t total_bytes = 0;
  uint64_t left_bytes = 0;  // that are to be free on the disk besides
};

// Begins the names of directories that are being made; no name that a user can
// give to an output begins so.
inline constexpr char kTemporaryPrefix[] = ".tmp-";
std::string TemporaryName(const std::string& final_path);
std::string TemporaryPath(const DirectoryPlan& plan);

// Makes the empty temporary directory, removing one left by a crash.
// RESOURCE_EXHAUSTED when the disk has not `total_bytes` free; errors as
// base/files/durable_file.h.
absl::Status BeginDirectory(const DirectoryPlan& plan);

// After the files worker is done: writes texts and copies, syncs everything,
// renames, syncs the parent.  An existing directory of that name is replaced,
// or kept: ALREADY_EXISTS; with an owner_uid it is kept unless it is of that
// job (output_owner.h).
absl::Status FinishDirectory(const DirectoryPlan& plan);

// Removes what BeginDirectory and the files worker left, or the old directory
// that was swapped out; what stays is logged, and goes when the daemon starts.
void AbandonDirectory(const DirectoryPlan& plan);

// Reads the manifest and looks at the files' sizes.  DATA_LOSS names the file
// and what is wrong with it: also a directory of one step's name with the
// manifest of another step.  UNAVAILABLE: descriptors or memory are short just
// now.
absl::StatusOr<CheckpointManifest> ReadCheckpoint(const FileOpener& files,
                                                  const std::string& path);
// The same, and hashes every file.
absl::StatusOr<CheckpointManifest> VerifyCheckpoint(const FileOpener& files,
                                                    const std::string& path);

// Hashes one file of a checkpoint.  DATA_LOSS as ReadCheckpoint.
absl::Status VerifyCheckpointFile(const FileOpener& files,
                                  const std::string& path,
                                  const CheckpointShard& file);

// The text of a file beside the tensors, at most kMaxTextBytes, as it was
// saved; "" where the checkpoint has none of that name.  DATA_LOSS as
// ReadCheckpoint.  Of a version 1 as it is found.
inline constexpr uint64_t kMaxTextBytes = uint64_t{1} << 30;
absl::StatusOr<std::string> CheckpointText(const FileOpener& files,
                                           const std::string& path,
                                           const CheckpointManifest& manifest,
                                           const std::string& file);

// What to load to go on from a checkpoint, which is of `step`: weights, masters
// and moments of what trains.
// DATA_LOSS when a tensor is missing or of another shape.
absl::StatusOr<std::vector<FilePart>> ResumeParts(const FileOpener& files,
                                                  const std::string& path,
                                                  int64_t step,
                                                  const TrainingState& state);

// Whether a job that trains this in `dtype` can go on from a checkpoint, by its
// manifest, which it answers, and its files' headers.  INVALID_ARGUMENT
// names the dtype, or the tensor that differs or that only one of them has;
// DATA_LOSS as ReadCheckpoint.
absl::StatusOr<CheckpointManifest> CheckResumable(const FileOpener& files,
                                                  const std::string& path,
                                                  const ModelConfig& model,
                                                  const AdapterConfig& adapter,
                                                  DType dtype);

// Steps of the checkpoints in `directory`, ascending; none where there is no
// such folder.  INTERNAL: the disk does not say.
absl::StatusOr<std::vector<int64_t>> FindCheckpointSteps(
    const std::string& directory);
// The same; none, too, where the disk does not say.
std::vector<int64_t> ListCheckpointSteps(const std::string& directory);
std::string CheckpointPath(const std::string& directory, int64_t step);

// The step of "<directory>/checkpoint-<step>", as CheckpointPath writes it.
std::optional<int64_t> CheckpointStepOf(const std::string& path);

// Removes the oldest beyond the newest `kept`, never that of `best_step`, and
// none unless the newest verifies: the last good one stays.  DATA_LOSS says why
// it does not; other errors name the first that could not be removed, the
// others are.  Those after `newest_step`, which the disk did not give when the
// job went on from an older one, neither count nor go.
// REQUIRES: kept > 0.
absl::Status RemoveOldCheckpoints(
    const std::string& directory, int64_t kept,
    std::optional<int64_t> best_step = std::nullopt,
    int64_t newest_step = std::numeric_limits<int64_t>::max());

// Renames it to <path>.corrupt, so that it is neither used nor lost.
absl::Status QuarantineCheckpoint(const std::string& path);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_WEIGHTS_CHECKPOINT_H_
