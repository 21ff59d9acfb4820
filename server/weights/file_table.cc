#include "server/weights/file_table.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/model/safetensors.h"
#include "base/model/safetensors_index.h"
#include "base/status.h"

namespace roundhouse {
namespace {

// A tensor on its way into a file.
struct Outgoing {
  SafetensorsEntry entry;
  uint64_t arena_offset = 0;
  DType dtype = DType::kF32;
  uint64_t element_count = 0;

  uint64_t bytes() const { return element_count * DTypeBytes(dtype); }
};

uint64_t ElementOffset(uint64_t base, int64_t elements, DType dtype) {
  return base + static_cast<uint64_t>(elements) * DTypeBytes(dtype);
}

Outgoing MakeOutgoing(const StoredTensor& spec, const std::string& suffix,
                      uint64_t base, DType dtype) {
  return {{spec.name + suffix, ToFileDType(dtype), spec.shape},
          ElementOffset(base, spec.unit_offset_elements, dtype),
          dtype,
          static_cast<uint64_t>(spec.element_count)};
}

std::vector<std::vector<Outgoing>> CutShards(std::vector<Outgoing> tensors,
                                             uint64_t max_bytes) {
  std::vector<std::vector<Outgoing>> shards(1);
  uint64_t bytes = 0;
  for (Outgoing& tensor : tensors) {
    if (!shards.back().empty() && bytes + tensor.bytes() > max_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += tensor.bytes();
    shards.back().push_back(std::move(tensor));
  }
  return shards;
}

absl::StatusOr<FilePart> MakePart(const std::string& path,
                                  const std::vector<Outgoing>& tensors) {
  std::vector<SafetensorsEntry> entries;
  for (const Outgoing& tensor : tensors) entries.push_back(tensor.entry);
  ASSIGN_OR_RETURN(const SafetensorsPrefix prefix,
                   BuildSafetensorsHeader(entries));
  FilePart part;
  part.path = path;
  part.prefix = prefix.bytes;
  part.file_bytes = prefix.file_size;
  for (size_t i = 0; i < tensors.size(); ++i) {
    wire::FileTensor tensor = {};
    tensor.file_offset = prefix.offsets[i];
    tensor.element_count = tensors[i].element_count;
    tensor.first_offset = tensors[i].arena_offset;
    tensor.first_dtype = tensors[i].dtype;
    tensor.file_dtype = tensor.first_dtype;
    part.tensors.push_back(tensor);
  }
  return part;
}

absl::StatusOr<WeightFiles> MakeFiles(const std::string& directory,
                                      const std::string& stem,
                                      uint64_t max_shard_bytes,
                                      std::vector<Outgoing> tensors) {
  const auto shards = CutShards(std::move(tensors), max_shard_bytes);
  WeightFiles files;
  std::map<std::string, std::string> file_of_tensor;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name =
        shards.size() == 1 ? stem + ".safetensors"
                           : absl::StrFormat("%s-%05d-of-%05d.safetensors",
                                             stem, i + 1, shards.size());
    ASSIGN_OR_RETURN(FilePart part,
                     MakePart(absl::StrCat(directory, "/", name), shards[i]));
    for (const Outgoing& tensor : shards[i]) {
      file_of_tensor[tensor.entry.name] = name;
      files.total_bytes += tensor.bytes();
    }
    files.parts.push_back(std::move(part));
  }
  if (shards.size() > 1) {
    files.index_name = stem + ".safetensors.index.json";
    files.index_json = SafetensorsIndexJson(file_of_tensor, files.total_bytes);
  }
  return files;
}

// Appends to one range of the arena.
class TableWriter {
 public:
  TableWriter(wire::Arena& arena, uint64_t offset)
      : arena_(arena), next_(offset) {}
  uint64_t Bytes(const std::string& bytes) {
    const uint64_t offset = next_;
    std::memcpy(arena_.At<char>(offset, bytes.size()), bytes.data(),
                bytes.size());
    next_ += (bytes.size() + 7) / 8 * 8;
    return offset;
  }
  template <typename T>
  uint64_t Array(const std::vector<T>& values) {
    const uint64_t offset = next_;
    std::copy(values.begin(), values.end(),
              arena_.At<T>(offset, values.size()));
    next_ += values.size() * sizeof(T);
    return offset;
  }

 private:
  wire::Arena& arena_;
  uint64_t next_;
};

}  // namespace

void FilePart::ReadAs(const CheckedFile& file) {
  path = file.path;
  root = file.root;
  identity = file.identity;
  file_bytes = file.identity.size_bytes;
}

absl::StatusOr<std::unique_ptr<FileTable>> FileTable::Create(
    HostArena& arena, wire::FileOpKind kind,
    const std::vector<FilePart>& parts) {
  uint64_t bytes = 0;
  std::vector<wire::FileTensor> tensors;
  for (const FilePart& part : parts) {
    bytes += part.path.size() + part.root.size() + part.prefix.size() + 24 +
             sizeof(wire::FileShard) +
             part.tensors.size() * sizeof(wire::FileTensor);
    tensors.insert(tensors.end(), part.tensors.begin(), part.tensors.end());
  }
  auto table = std::unique_ptr<FileTable>(new FileTable(arena));
  ASSIGN_OR_RETURN(table->range_, ArenaRange::Allocate(arena, bytes));
  TableWriter writer(arena.arena(), table->range_.offset());
  std::vector<wire::FileShard> shards;
  uint32_t first_tensor = 0;
  for (const FilePart& part : parts) {
    wire::FileShard shard = {};
    shard.path_offset = writer.Bytes(part.path);
    shard.path_bytes = static_cast<uint32_t>(part.path.size());
    shard.root_offset = writer.Bytes(part.root);
    shard.root_bytes = static_cast<uint32_t>(part.root.size());
    shard.device = part.identity.device;
    shard.inode = part.identity.inode;
    shard.mtime_ns = part.identity.mtime_ns;
    shard.prefix_offset = writer.Bytes(part.prefix);
    shard.prefix_bytes = part.prefix.size();
    shard.file_bytes = part.file_bytes;
    shard.first_tensor = first_tensor;
    shard.tensor_count = static_cast<uint32_t>(part.tensors.size());
    first_tensor += shard.tensor_count;
    shards.push_back(shard);
  }
  const bool init = kind == wire::FileOpKind::kInit;
  table->op_.kind = kind;
  table->op_.shards_offset = init ? 0 : writer.Array(shards);
  table->op_.shard_count = init ? 0 : static_cast<uint32_t>(shards.size());
  table->op_.tensors_offset = writer.Array(tensors);
  table->op_.tensor_count = static_cast<uint32_t>(tensors.size());
  return table;
}

std::string FileTable::Sha256(int index) const {
  const auto* shards =
      arena_.arena().At<wire::FileShard>(op_.shards_offset, op_.shard_count);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(shards[index].sha256),
                        sizeof(shards[index].sha256)));
}

namespace {

// The destination of what is read or drawn, a stored tensor or a parameter:
// compute copy and, where it trains, master.
template <typename Spec>
wire::FileTensor Incoming(const LoadTarget& target, const Spec& spec) {
  wire::FileTensor tensor = {};
  tensor.element_count = static_cast<uint64_t>(spec.element_count);
  tensor.first_offset = ElementOffset(target.compute_offset,
                                      spec.unit_offset_elements, target.dtype);
  tensor.first_dtype = target.dtype;
  tensor.second_dtype = DType::kF32;
  if (target.master_offset != 0) {
    tensor.second_offset = ElementOffset(
        target.master_offset, spec.unit_offset_elements, DType::kF32);
  }
  return tensor;
}

// A frozen unit has no master.
LoadTarget TargetOf(const TrainingState& state, int unit) {
  return {state.Weights(unit, 0).offset, state.dtype(unit),
          state.layout(unit).master_offset};
}

// The other copy of compute weights.
LoadTarget SecondTargetOf(const TrainingState& state, int unit) {
  return {state.Weights(unit, 1).offset, state.dtype(unit), 0};
}

bool IsLoraB(ParamRole role) {
  return role >= ParamRole::kQLoraB && role <= ParamRole::kDownLoraB;
}

void SetInit(const TrainingState& state, const ParameterSpec& spec,
             wire::FileTensor& tensor) {
  wire::TensorInit init = wire::TensorInit::kNormal;
  if (state.options().adapter.present()) {
    const bool zeros = IsLoraB(spec.role);
    init = zeros ? wire::TensorInit::kZeros : wire::TensorInit::kUniform;
    tensor.init_std = 1 / std::sqrt(static_cast<double>(spec.shape.back()));
  } else {
    if (spec.shape.size() == 1) {
      const bool bias = spec.role >= ParamRole::kQBias;
      init = bias ? wire::TensorInit::kZeros : wire::TensorInit::kOnes;
    }
    tensor.init_std = state.options().model.initializer_range;
  }
  tensor.init = init;
}

// Calls `visit(unit, spec)` for every unit that trains, in order.
void ForTrained(const TrainingState& state,
                const std::function<void(int, const UnitSpec&)>& visit) {
  for (size_t i = 0; i < state.units().size(); ++i) {
    const int unit = static_cast<int>(i);
    if (state.trainable(unit)) visit(unit, state.units()[i]);
  }
}

}  // namespace

std::vector<FilePart> LoadParts(
    const std::vector<std::vector<ParameterSource>>& sources,
    const std::vector<UnitSpec>& units,
    const std::vector<LoadTarget>& targets) {
  std::map<std::string, FilePart> parts;
  for (size_t u = 0; u < sources.size(); ++u) {
    const std::vector<StoredTensor> stored = StoredTensors(units[u]);
    for (size_t t = 0; t < stored.size(); ++t) {
      const ParameterSource& source = sources[u][t];
      wire::FileTensor tensor = Incoming(targets[u], stored[t]);
      tensor.file_offset = source.offset;
      tensor.file_dtype = source.dtype;
      FilePart& part = parts[source.file.path];
      part.ReadAs(source.file);
      part.tensors.push_back(tensor);
    }
  }
  std::vector<FilePart> ordered;
  for (auto& [path, part] : parts) ordered.push_back(std::move(part));
  return ordered;
}

std::vector<FilePart> LoadParts(
    const std::vector<std::vector<ParameterSource>>& sources, int first_unit,
    const TrainingState& state) {
  std::vector<UnitSpec> units;
  std::vector<LoadTarget> targets;
  std::vector<LoadTarget> seconds;
  for (size_t u = 0; u < sources.size(); ++u) {
    const int unit = first_unit + static_cast<int>(u);
    units.push_back(state.units()[unit]);
    targets.push_back(TargetOf(state, unit));
    seconds.push_back(SecondTargetOf(state, unit));
  }
  std::vector<FilePart> parts = LoadParts(sources, units, targets);
  // Frozen units have one version.
  if (state.options().stale && state.trainable(first_unit)) {
    for (FilePart& part : LoadParts(sources, units, seconds)) {
      parts.push_back(std::move(part));
    }
  }
  return parts;
}

std::vector<FilePart> InitParts(const TrainingState& state) {
  FilePart part;
  uint64_t stream = 0;
  ForTrained(state, [&](int unit, const UnitSpec& of_unit) {
    for (const ParameterSpec& spec : of_unit.parameters) {
      wire::FileTensor tensor = Incoming(TargetOf(state, unit), spec);
      SetInit(state, spec, tensor);
      tensor.init_stream = stream++;
      part.tensors.push_back(tensor);
      if (!state.options().stale) continue;
      tensor.first_offset =
          Incoming(SecondTargetOf(state, unit), spec).first_offset;
      tensor.second_offset = 0;
      part.tensors.push_back(tensor);
    }
  });
  return {part};
}

SavedState SavedStateOf(const TrainingState& state, int64_t update) {
  SavedState saved;
  saved.specs = state.shared_units();
  saved.adapters = state.options().adapter.present();
  saved.stale = state.options().stale;
  ForTrained(state, [&](int unit, const UnitSpec&) {
    const wire::UnitLayout& layout = state.layout(unit);
    saved.units.push_back(
        {.index = static_cast<size_t>(unit),
         .dtype = state.dtype(unit),
         .weights = state.Weights(unit, update).offset,
         .previous = saved.stale ? state.Weights(unit, update - 1).offset : 0,
         .master = layout.master_offset,
         .exp_avg = layout.exp_avg_offset,
         .exp_avg_sq = layout.exp_avg_sq_offset});
  });
  return saved;
}

absl::StatusOr<WeightFiles> TrainedFiles(const SavedState& state,
                                         const std::string& directory) {
  std::vector<Outgoing> tensors;
  for (const SavedState::Unit& unit : state.units) {
    for (const StoredTensor& stored :
         StoredTensors((*state.specs)[unit.index])) {
      tensors.push_back(MakeOutgoing(stored, "", unit.weights, unit.dtype));
    }
  }
  return MakeFiles(
      directory, state.adapters ? "adapter_model" : "model",
      state.adapters ? std::numeric_limits<uint64_t>::max() : kMaxShardBytes,
      std::move(tensors));
}

absl::StatusOr<WeightFiles> OptimizerFiles(const SavedState& state,
                                           const std::string& directory) {
  std::vector<Outgoing> tensors;
  for (const SavedState::Unit& unit : state.units) {
    const std::pair<const char*, uint64_t> kinds[] = {
        {".master", unit.master},
        {".exp_avg", unit.exp_avg},
        {".exp_avg_sq", unit.exp_avg_sq}};
    for (const StoredTensor& stored :
         StoredTensors((*state.specs)[unit.index])) {
      for (const auto& [suffix, base] : kinds) {
        tensors.push_back(MakeOutgoing(stored, suffix, base, DType::kF32));
      }
      if (!state.stale) continue;
      tensors.push_back(
          MakeOutgoing(stored, kPreviousSuffix, unit.previous, unit.dtype));
    }
  }
  return MakeFiles(directory, "optimizer", kMaxShardBytes, std::move(tensors));
}

}  // namespace roundhouse
