#include "server/weights/export_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/model/directory.h"
#include "base/model/parameters.h"
#include "base/model/safetensors.h"
#include "base/model/safetensors_index.h"
#include "base/status.h"
#include "server/spec/spec_error.h"
#include "server/weights/adapter_files.h"

namespace roundhouse {
namespace {

constexpr char kTrainerState[] = "trainer_state.json";
constexpr char kGenerationConfig[] = "generation_config.json";

// A tensor of the output and what it is made of.
struct Tensor {
  std::string name;
  std::vector<int64_t> shape;
  DType dtype = DType::kF32;
  wire::MergeRows whole;  // all rows; output and output_offset not set

  uint64_t row_bytes() const { return whole.columns * DTypeBytes(dtype); }
  uint64_t bytes() const { return whole.row_count * row_bytes(); }
};

wire::FileMatrix MatrixOf(const ParameterSource& source) {
  return {source.file, source.offset, source.dtype};
}

// Vectors are one row, whatever has more dimensions is rows of its first.
Tensor MakeTensor(const std::string& name, const std::vector<int64_t>& shape,
                  const ParameterSource& source, std::optional<DType> dtype) {
  Tensor tensor;
  tensor.name = name;
  tensor.shape = shape;
  tensor.dtype = dtype.value_or(source.dtype);
  tensor.whole.output_dtype = tensor.dtype;
  tensor.whole.base = MatrixOf(source);
  tensor.whole.row_count =
      shape.size() < 2 ? 1 : static_cast<uint64_t>(shape[0]);
  const uint64_t count = source.bytes / DTypeBytes(source.dtype);
  tensor.whole.columns =
      tensor.whole.row_count == 0 ? 0 : count / tensor.whole.row_count;
  return tensor;
}

absl::Status Refused(const char* field, const std::string& why) {
  return FieldError(FieldReason::kInvalidValue, field, why);
}

// The field is the protocol's; no caller writes its name.
absl::Status NotOfThisKind(const std::string& why) {
  return RequestError(FieldReason::kInvalidValue, "kind", why);
}

// An error about files, with the field that led to them.
absl::Status About(const char* field, const absl::Status& status) {
  const bool unimplemented = absl::IsUnimplemented(status);
  return FieldError(
      unimplemented ? absl::StatusCode::kUnimplemented
                    : absl::StatusCode::kInvalidArgument,
      unimplemented ? FieldReason::kNotAvailable : FieldReason::kInvalidValue,
      field, std::string(status.message()));
}

absl::StatusOr<ExportKind> KindOf(const FileOpener& files,
                                  const ExportRequest& request) {
  const bool adapter = IsAdapterDirectory(files, request.source);
  const std::string& source = request.source;
  switch (request.kind) {
    case ExportKind::kAsIs:
      return adapter ? ExportKind::kAdapter : ExportKind::kFull;
    case ExportKind::kFull:
      if (!adapter) break;
      return NotOfThisKind(
          absl::StrCat(source,
                       " is an adapter: export it as it is, or merged into its "
                       "base"));
    case ExportKind::kAdapter:
    case ExportKind::kMerged:
      if (adapter) break;
      return NotOfThisKind(absl::StrCat(
          source, " is a whole model, not an adapter (", kAdapterConfigName,
          " is not there): there is nothing to merge, leave out --merge"));
  }
  return request.kind;
}

class Planner {
 public:
  Planner(const ExportRequest& request, const ExportPlanOptions& options,
          ExportKind kind)
      : request_(request), options_(options) {
    plan_.kind = kind;
    plan_.output = request.output;
  }

  absl::StatusOr<ExportPlan> Plan() {
    switch (plan_.kind) {
      case ExportKind::kAdapter:
        RETURN_IF_ERROR(TakeAdapter());
        break;
      case ExportKind::kMerged:
        RETURN_IF_ERROR(TakeMerged());
        break;
      default:
        RETURN_IF_ERROR(TakeFull());
    }
    RETURN_IF_ERROR(PlaceFiles());
    return std::move(plan_);
  }

 private:
  const FileOpener& files() const { return *options_.files; }
  absl::Status Copy(const std::string& directory, const std::string& name) {
    const auto file = files().Open(absl::StrCat(directory, "/", name));
    if (!file.ok()) return About("source", file.status());
    plan_.copied_files.push_back({name, file->checked()});
    return absl::OkStatus();
  }
  absl::Status CopyWhatBelongsTo(const std::string& directory) {
    for (const std::string& name : TokenizerFilesIn(files(), directory)) {
      RETURN_IF_ERROR(Copy(directory, name));
    }
    return absl::OkStatus();
  }
  absl::Status CopyTrainerState() {
    if (!files().IsThere(absl::StrCat(request_.source, "/", kTrainerState))) {
      return absl::OkStatus();
    }
    return Copy(request_.source, kTrainerState);
  }

  absl::Status TakeAdapter();
  absl::Status TakeFull();
  absl::Status TakeMerged();
  absl::StatusOr<std::string> FindBase() const;
  void TakeModel(const ModelDirectory& model);
  absl::Status SetConfig(const ModelDirectory& model);
  void AddAdapter(const ModelConfig& model, const AdapterDirectory& adapter);
  absl::Status CopyTokenizer(const ModelDirectory& base);

  absl::Status PlaceFiles();
  std::vector<std::vector<Tensor>> CutShards();
  absl::Status PlaceShard(const std::string& file,
                          const std::vector<Tensor>& tensors);
  void CutPieces(const Tensor& tensor, size_t part, uint64_t offset);
  void SetSyncs();

  const ExportRequest& request_;
  const ExportPlanOptions& options_;
  ExportPlan plan_;
  std::vector<Tensor> tensors_;
};

absl::Status Planner::TakeAdapter() {
  if (request_.dtype.has_value()) {
    return Refused("dtype",
                   "an adapter is exported as it is; with a dtype it "
                   "can be merged into its base");
  }
  const std::string path =
      absl::StrCat(request_.source, "/", kAdapterWeightsName);
  const auto header = ReadSafetensorsHeader(files(), path);
  if (!header.ok()) return About("source", header.status());
  for (const auto& [name, tensor] : header->tensors) {
    const auto dtype = ToDType(tensor.dtype);
    if (!dtype.has_value()) {
      return About("source",
                   absl::UnimplementedError(absl::StrCat(
                       path, ": tensor ", name, ": dtype ",
                       FileDTypeName(tensor.dtype), " is not supported")));
    }
    tensors_.push_back(MakeTensor(name, tensor.shape,
                                  {.file = header->file,
                                   .offset = tensor.begin,
                                   .bytes = tensor.end - tensor.begin,
                                   .dtype = *dtype},
                                  std::nullopt));
  }
  RETURN_IF_ERROR(Copy(request_.source, kAdapterConfigName));
  RETURN_IF_ERROR(CopyWhatBelongsTo(request_.source));
  return CopyTrainerState();
}

absl::Status Planner::TakeFull() {
  const auto model = OpenModelDirectory(files(), request_.source);
  if (!model.ok()) return About("source", model.status());
  TakeModel(*model);
  RETURN_IF_ERROR(CopyWhatBelongsTo(request_.source));
  RETURN_IF_ERROR(CopyTrainerState());
  return SetConfig(*model);
}

absl::Status Planner::TakeMerged() {
  ASSIGN_OR_RETURN(const std::string path, FindBase());
  const auto base = OpenModelDirectory(files(), path);
  if (!base.ok()) return About("source", base.status());
  const auto adapter =
      OpenAdapterDirectory(files(), request_.source, base->config);
  if (!adapter.ok()) return About("source", adapter.status());
  TakeModel(*base);
  AddAdapter(base->config, *adapter);
  RETURN_IF_ERROR(CopyTokenizer(*base));
  return SetConfig(*base);
}

absl::StatusOr<std::string> Planner::FindBase() const {
  const auto base = BaseOfAdapter(files(), request_.source);
  if (!base.ok()) return About("source", base.status());
  auto path = options_.find_base(*base);
  if (path.ok()) return path;
  return FieldError(ErrorReason(path.status()), "source",
                    absl::StrCat(request_.source, "/", kAdapterConfigName, ": ",
                                 std::string(path.status().message())));
}

void Planner::TakeModel(const ModelDirectory& model) {
  const std::vector<UnitSpec> units = ModelUnits(model.config);
  for (size_t u = 0; u < units.size(); ++u) {
    const std::vector<StoredTensor> stored = StoredTensors(units[u]);
    for (size_t t = 0; t < stored.size(); ++t) {
      tensors_.push_back(MakeTensor(stored[t].name, stored[t].shape,
                                    model.sources[u][t], request_.dtype));
    }
  }
}

// config.json tells the weights' dtype.
absl::Status Planner::SetConfig(const ModelDirectory& model) {
  std::string& text = plan_.texts["config.json"];
  if (!request_.dtype.has_value()) {
    text = model.config_json;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(text,
                   ExportedConfigJson(model.config_json, *request_.dtype));
  return absl::OkStatus();
}

// "base_model.model.X.lora_A.weight" and lora_B behind it belong to "X.weight".
void Planner::AddAdapter(const ModelConfig& model,
                         const AdapterDirectory& adapter) {
  constexpr size_t kPrefix = sizeof("base_model.model.") - 1;
  constexpr size_t kSuffix = sizeof(".lora_A.weight") - 1;
  std::map<std::string, Tensor*> by_name;
  for (Tensor& tensor : tensors_) by_name[tensor.name] = &tensor;
  for (int64_t layer = 0; layer < model.layer_count; ++layer) {
    const auto specs = AdapterUnit(model, adapter.config, layer).parameters;
    const std::vector<ParameterSource>& sources = adapter.sources[layer];
    for (size_t p = 0; p < specs.size(); p += 2) {
      const std::string& a = specs[p].name;
      const std::string module =
          a.substr(kPrefix, a.size() - kPrefix - kSuffix);
      wire::MergeRows& whole = by_name.at(module + ".weight")->whole;
      whole.rank = static_cast<uint64_t>(adapter.config.rank);
      whole.scale = adapter.config.scale();
      whole.lora_a = MatrixOf(sources[p]);
      whole.lora_b = MatrixOf(sources[p + 1]);
    }
  }
}

// One set: files of two tokenizers do not go together.
absl::Status Planner::CopyTokenizer(const ModelDirectory& base) {
  const std::vector<std::string> own =
      TokenizerFilesIn(files(), request_.source);
  if (std::count(own.begin(), own.end(), "tokenizer.json") == 0) {
    return CopyWhatBelongsTo(base.path);
  }
  RETURN_IF_ERROR(CopyWhatBelongsTo(request_.source));
  const auto& theirs = base.tokenizer_files;
  if (std::count(own.begin(), own.end(), kGenerationConfig) == 0 &&
      std::count(theirs.begin(), theirs.end(), kGenerationConfig) != 0) {
    return Copy(base.path, kGenerationConfig);
  }
  return absl::OkStatus();
}

std::vector<std::vector<Tensor>> Planner::CutShards() {
  // Wider ones first: each lies at a multiple of its element.
  std::stable_sort(tensors_.begin(), tensors_.end(),
                   [](const Tensor& a, const Tensor& b) {
                     return DTypeBytes(a.dtype) > DTypeBytes(b.dtype);
                   });
  std::vector<std::vector<Tensor>> shards(1);
  uint64_t bytes = 0;
  for (Tensor& tensor : tensors_) {
    // PEFT reads one file only.
    if (plan_.kind != ExportKind::kAdapter && !shards.back().empty() &&
        bytes + tensor.bytes() > options_.max_shard_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += tensor.bytes();
    plan_.bytes += tensor.bytes();
    shards.back().push_back(std::move(tensor));
  }
  return shards;
}

absl::Status Planner::PlaceFiles() {
  const std::vector<std::vector<Tensor>> shards = CutShards();
  const auto count = static_cast<int64_t>(shards.size());
  std::map<std::string, std::string> file_of_tensor;
  for (int64_t i = 0; i < count; ++i) {
    const std::string file = plan_.kind == ExportKind::kAdapter
                                 ? kAdapterWeightsName
                             : count == 1 ? "model.safetensors"
                                          : ShardFileName(i, count);
    RETURN_IF_ERROR(PlaceShard(file, shards[i]));
    for (const Tensor& tensor : shards[i]) file_of_tensor[tensor.name] = file;
  }
  SetSyncs();
  if (count > 1) {
    plan_.texts["model.safetensors.index.json"] =
        SafetensorsIndexJson(file_of_tensor, plan_.bytes);
  }
  return absl::OkStatus();
}

absl::Status Planner::PlaceShard(const std::string& file,
                                 const std::vector<Tensor>& tensors) {
  std::vector<SafetensorsEntry> entries;
  for (const Tensor& tensor : tensors) {
    entries.push_back({tensor.name, ToFileDType(tensor.dtype), tensor.shape});
  }
  ASSIGN_OR_RETURN(const SafetensorsPrefix prefix,
                   BuildSafetensorsHeader(entries));
  FilePart part;
  part.path = file;
  part.prefix = prefix.bytes;
  part.file_bytes = prefix.file_size;
  plan_.disk_bytes += part.file_bytes;
  for (size_t i = 0; i < tensors.size(); ++i) {
    CutPieces(tensors[i], plan_.parts.size(), prefix.offsets[i]);
  }
  plan_.parts.push_back(std::move(part));
  return absl::OkStatus();
}

void Planner::CutPieces(const Tensor& tensor, size_t part, uint64_t offset) {
  if (tensor.bytes() == 0) return;
  const uint64_t most =
      std::max<uint64_t>(1, options_.max_piece_bytes / tensor.row_bytes());
  for (uint64_t row = 0; row < tensor.whole.row_count; row += most) {
    ExportPiece piece{
        .tensor = tensor.name, .part = part, .rows = tensor.whole};
    piece.rows.first_row = row;
    piece.rows.row_count = std::min(most, tensor.whole.row_count - row);
    piece.rows.output_offset = offset + row * tensor.row_bytes();
    piece.bytes = piece.rows.row_count * tensor.row_bytes();
    plan_.pieces.push_back(std::move(piece));
  }
}

// Small pieces wait for the disk together: once where as much was written as a
// piece has at most, and at the end of each file.
void Planner::SetSyncs() {
  uint64_t unsynced = 0;
  for (size_t i = 0; i < plan_.pieces.size(); ++i) {
    ExportPiece& piece = plan_.pieces[i];
    unsynced += piece.bytes;
    const bool last =
        i + 1 == plan_.pieces.size() || plan_.pieces[i + 1].part != piece.part;
    piece.rows.sync = last || unsynced >= options_.max_piece_bytes;
    if (piece.rows.sync) unsynced = 0;
  }
}

}  // namespace

absl::StatusOr<ExportPlan> PlanExport(const ExportRequest& request,
                                      const ExportPlanOptions& options) {
  ASSIGN_OR_RETURN(const ExportKind kind, KindOf(*options.files, request));
  return Planner(request, options, kind).Plan();
}

}  // namespace roundhouse
