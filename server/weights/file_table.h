// The table that tells the files worker which tensors lie where in which files
// (base/wire/layout.h), in arena memory lent for one operation.
//
// Runs on the event loop's thread, but for what says otherwise.
#ifndef ROUNDHOUSE_SERVER_WEIGHTS_FILE_TABLE_H_
#define ROUNDHOUSE_SERVER_WEIGHTS_FILE_TABLE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/model/directory.h"
#include "base/wire/messages.h"
#include "server/arena/host_arena.h"
#include "server/weights/training_state.h"

namespace roundhouse {

// One file to read from or to write.
struct FilePart {
  std::string path;
  std::string prefix;  // written before the tensors
  uint64_t file_bytes = 0;
  std::vector<wire::FileTensor> tensors;
  // For a load, CheckedFile's: the worker reads the file only as this.
  std::string root;
  FileIdentity identity;

  void ReadAs(const CheckedFile& file);  // all but prefix and tensors
};

class FileTable {
 public:
  // `kind` kInit takes one part without a path.
  static absl::StatusOr<std::unique_ptr<FileTable>> Create(
      HostArena& arena, wire::FileOpKind kind,
      const std::vector<FilePart>& parts);

  // The command; job, operation and seed are the caller's to fill in.
  const wire::FileOp& op() const { return op_; }
  // What the files worker found: lower-case hexadecimal, of part `index`.
  std::string Sha256(int index) const;

 private:
  explicit FileTable(HostArena& arena) : arena_(arena) {}

  HostArena& arena_;
  ArenaRange range_;
  wire::FileOp op_;
};

// Where the parameters of one unit are read to.
struct LoadTarget {
  uint64_t compute_offset = 0;  // in the arena
  DType dtype = DType::kF32;    // there
  uint64_t master_offset = 0;   // fp32; 0: none
};
// sources[u] are those of the StoredTensors of units[u], which go to
// targets[u].
// REQUIRES: as many of each.
std::vector<FilePart> LoadParts(
    const std::vector<std::vector<ParameterSource>>& sources,
    const std::vector<UnitSpec>& units, const std::vector<LoadTarget>& targets);
// Reads parameters into compute copies, both where there are two, and, of units
// that train, masters.
// sources[u] belongs to state.units()[first_unit + u].
std::vector<FilePart> LoadParts(
    const std::vector<std::vector<ParameterSource>>& sources, int first_unit,
    const TrainingState& state);
// Draws every parameter that trains.  A whole model: normal with the
// configuration's standard deviation, ones for norm weights, zeros for biases.
// Adapters as PEFT: A uniform within 1 / sqrt(columns) of zero, B zeros.
std::vector<FilePart> InitParts(const TrainingState& state);

// Marks a parameter's compute weights before the last update.
inline constexpr char kPreviousSuffix[] = ".previous";

// Files of one set of tensors, at most kMaxShardBytes each, and the index that
// Hugging Face expects where there are several ("" where there is one).
inline constexpr uint64_t kMaxShardBytes = 5'000'000'000;
struct WeightFiles {
  std::vector<FilePart> parts;
  std::string index_name;
  std::string index_json;
  uint64_t total_bytes = 0;
};
// Where what trains lies in the arena, as `update` left it.  A value of its
// own: names of 147,000 tensors are made on another thread.
struct SavedState {
  struct Unit {
    size_t index = 0;  // of `specs`
    DType dtype = DType::kF32;
    uint64_t weights = 0;
    uint64_t previous = 0;  // the weights before the update
    uint64_t master = 0;
    uint64_t exp_avg = 0;
    uint64_t exp_avg_sq = 0;
  };
  std::shared_ptr<const std::vector<UnitSpec>> specs;
  std::vector<Unit> units;  // that train, in order
  bool adapters = false;
  bool stale = false;  // weights are there as the update before left them, too
};
SavedState SavedStateOf(const TrainingState& state, int64_t update);

// Compute weights: a whole model as model.safetensors or its shards, adapters
// as adapter_model.safetensors, one file of any size, since PEFT reads no
// other.  Any thread, as the next.
absl::StatusOr<WeightFiles> TrainedFiles(const SavedState& state,
                                         const std::string& directory);
// Masters and moments as optimizer.safetensors or its shards; names are the
// parameter's with .master, .exp_avg, .exp_avg_sq.  Compute weights as the
// update before left them, where they are kept, as .previous.
absl::StatusOr<WeightFiles> OptimizerFiles(const SavedState& state,
                                           const std::string& directory);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_WEIGHTS_FILE_TABLE_H_
