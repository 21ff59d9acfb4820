#include "worker/files/tensor_io.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/convert.h"
#include "base/dtype.h"
#include "base/kill_point.h"
#include "base/status.h"
#include "worker/files/file_io.h"
#include "worker/files/normal.h"

namespace roundhouse::worker {
namespace {

// Even, so that a piece begins with a pair of normals.
constexpr uint64_t kPieceElements = kPieceBytes / sizeof(float);
static_assert(kPieceElements % 2 == 0);
constexpr uint32_t kMaxPathBytes = 4096;

bool IsDType(DType dtype) {
  return dtype >= DType::kF32 && dtype <= DType::kF16;
}

uint32_t Value(DType dtype) { return static_cast<uint32_t>(dtype); }

// One side of a tensor in the arena; absent when its offset is 0.
struct Place {
  std::byte* data = nullptr;
  DType dtype = DType::kF32;

  std::byte* At(uint64_t element) const {
    return data + element * DTypeBytes(dtype);
  }
};

absl::StatusOr<Place> PlaceAt(wire::Arena& arena, uint64_t offset, DType dtype,
                              uint64_t count) {
  if (offset == 0) return Place{};
  if (!IsDType(dtype) || offset % DTypeBytes(dtype) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("dtype ", Value(dtype), " at arena offset ", offset));
  }
  if (count > arena.size_bytes()) {
    return absl::InvalidArgumentError(absl::StrCat(count, " elements"));
  }
  return Place{arena.At<std::byte>(offset, count * DTypeBytes(dtype)), dtype};
}

// Calls `piece(first, count)` over [0, elements).
absl::Status ForPieces(
    uint64_t elements,
    const std::function<absl::Status(uint64_t, uint64_t)>& piece) {
  for (uint64_t first = 0; first < elements; first += kPieceElements) {
    RETURN_IF_ERROR(piece(first, std::min(kPieceElements, elements - first)));
  }
  return absl::OkStatus();
}

// One operation over its tables.
class FileOperation {
 public:
  FileOperation(wire::Arena& arena, const wire::FileOp& op)
      : arena_(arena),
        op_(op),
        shards_(op.shard_count == 0 ? nullptr
                                    : arena.At<wire::FileShard>(
                                          op.shards_offset, op.shard_count)),
        tensors_(op.tensor_count == 0
                     ? nullptr
                     : arena.At<wire::FileTensor>(op.tensors_offset,
                                                  op.tensor_count)),
        values_(kPieceElements),
        raw_(kPieceBytes) {}

  absl::StatusOr<uint64_t> Do();

 private:
  absl::Status Init(const wire::FileTensor& tensor);
  absl::Status Load(const wire::FileShard& shard);
  absl::Status LoadTensor(const InputFile& file, const wire::FileShard& shard,
                          const wire::FileTensor& tensor);
  absl::Status Save(wire::FileShard& shard);
  absl::Status SaveTensor(OutputFile& file, const wire::FileTensor& tensor);

  absl::Status CheckShard(const wire::FileShard& shard) const;
  std::string Path(const wire::FileShard& shard) const;
  CheckedFile Checked(const wire::FileShard& shard) const;
  // Gives `values_` to both places.
  void Put(const Place& first, const Place& second, uint64_t at,
           uint64_t count) const;

  wire::Arena& arena_;
  const wire::FileOp& op_;
  wire::FileShard* const shards_;
  const wire::FileTensor* const tensors_;
  std::vector<float> values_;   // a piece in fp32
  std::vector<std::byte> raw_;  // a piece as the file has it
  uint64_t bytes_ = 0;
};

absl::StatusOr<uint64_t> FileOperation::Do() {
  if (op_.kind == wire::FileOpKind::kInit) {
    for (uint32_t t = 0; t < op_.tensor_count; ++t) {
      RETURN_IF_ERROR(Init(tensors_[t]));
    }
    return bytes_;
  }
  for (uint32_t s = 0; s < op_.shard_count; ++s) {
    RETURN_IF_ERROR(CheckShard(shards_[s]));
    RETURN_IF_ERROR(op_.kind == wire::FileOpKind::kLoad ? Load(shards_[s])
                                                        : Save(shards_[s]));
  }
  return bytes_;
}

absl::Status FileOperation::CheckShard(const wire::FileShard& shard) const {
  if (shard.path_bytes == 0 || shard.path_bytes > kMaxPathBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a path of ", shard.path_bytes, " bytes"));
  }
  if (shard.first_tensor > op_.tensor_count ||
      shard.tensor_count > op_.tensor_count - shard.first_tensor) {
    return absl::InvalidArgumentError(
        absl::StrCat(Path(shard), ": tensors outside the table"));
  }
  return absl::OkStatus();
}

std::string FileOperation::Path(const wire::FileShard& shard) const {
  return std::string(arena_.At<char>(shard.path_offset, shard.path_bytes),
                     shard.path_bytes);
}

CheckedFile FileOperation::Checked(const wire::FileShard& shard) const {
  return {
      .root = std::string(arena_.At<char>(shard.root_offset, shard.root_bytes),
                          shard.root_bytes),
      .path = Path(shard),
      .identity = {.device = shard.device,
                   .inode = shard.inode,
                   .size_bytes = shard.file_bytes,
                   .mtime_ns = shard.mtime_ns}};
}

void FileOperation::Put(const Place& first, const Place& second, uint64_t at,
                        uint64_t count) const {
  for (const Place& place : {first, second}) {
    if (place.data == nullptr) continue;
    FromF32(place.dtype, values_.data(), place.At(at), count);
  }
}

absl::Status FileOperation::Init(const wire::FileTensor& tensor) {
  ASSIGN_OR_RETURN(const Place first,
                   PlaceAt(arena_, tensor.first_offset, tensor.first_dtype,
                           tensor.element_count));
  ASSIGN_OR_RETURN(const Place second,
                   PlaceAt(arena_, tensor.second_offset, tensor.second_dtype,
                           tensor.element_count));
  const auto init = tensor.init;
  if (init == wire::TensorInit::kNone || init > wire::TensorInit::kUniform) {
    return absl::InvalidArgumentError(absl::StrCat(
        "unknown initialisation ", static_cast<uint32_t>(tensor.init)));
  }
  RETURN_IF_ERROR(ForPieces(
      tensor.element_count, [&](uint64_t at, uint64_t count) -> absl::Status {
        if (init == wire::TensorInit::kNormal) {
          FillNormal(op_.seed, tensor.init_stream, at, tensor.init_std,
                     values_.data(), count);
        } else if (init == wire::TensorInit::kUniform) {
          FillUniform(op_.seed, tensor.init_stream, at, tensor.init_std,
                      values_.data(), count);
        } else {
          std::fill_n(values_.begin(), count,
                      init == wire::TensorInit::kOnes ? 1.0f : 0.0f);
        }
        Put(first, second, at, count);
        return absl::OkStatus();
      }));
  for (const Place& place : {first, second}) {
    if (place.data == nullptr) continue;
    bytes_ += tensor.element_count * DTypeBytes(place.dtype);
  }
  KillPoint("files.init.tensor");
  return absl::OkStatus();
}

absl::Status FileOperation::Load(const wire::FileShard& shard) {
  ASSIGN_OR_RETURN(const std::unique_ptr<InputFile> file,
                   InputFile::Open(Checked(shard)));
  for (uint32_t t = 0; t < shard.tensor_count; ++t) {
    RETURN_IF_ERROR(LoadTensor(*file, shard, tensors_[shard.first_tensor + t]));
    KillPoint("files.load.tensor");
  }
  return absl::OkStatus();
}

absl::Status FileOperation::LoadTensor(const InputFile& file,
                                       const wire::FileShard& shard,
                                       const wire::FileTensor& tensor) {
  if (!IsDType(tensor.file_dtype)) {
    return absl::InvalidArgumentError(absl::StrCat(
        Path(shard), ": unknown dtype ", Value(tensor.file_dtype)));
  }
  const auto dtype = tensor.file_dtype;
  const uint64_t element_bytes = DTypeBytes(dtype);
  if (tensor.file_offset > shard.file_bytes ||
      tensor.element_count >
          (shard.file_bytes - tensor.file_offset) / element_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        Path(shard), ": ", tensor.element_count, " elements at byte ",
        tensor.file_offset, " end after its ", shard.file_bytes, " bytes"));
  }
  ASSIGN_OR_RETURN(const Place first,
                   PlaceAt(arena_, tensor.first_offset, tensor.first_dtype,
                           tensor.element_count));
  ASSIGN_OR_RETURN(const Place second,
                   PlaceAt(arena_, tensor.second_offset, tensor.second_dtype,
                           tensor.element_count));
  bytes_ += tensor.element_count * element_bytes;
  return ForPieces(
      tensor.element_count, [&](uint64_t at, uint64_t count) -> absl::Status {
        RETURN_IF_ERROR(file.Read(tensor.file_offset + at * element_bytes,
                                  raw_.data(), count * element_bytes));
        ToF32(dtype, raw_.data(), values_.data(), count);
        Put(first, second, at, count);
        return absl::OkStatus();
      });
}

absl::Status FileOperation::Save(wire::FileShard& shard) {
  ASSIGN_OR_RETURN(const std::unique_ptr<OutputFile> file,
                   OutputFile::Create(Path(shard)));
  RETURN_IF_ERROR(
      file->Write(arena_.At<std::byte>(shard.prefix_offset, shard.prefix_bytes),
                  shard.prefix_bytes));
  for (uint32_t t = 0; t < shard.tensor_count; ++t) {
    const wire::FileTensor& tensor = tensors_[shard.first_tensor + t];
    if (tensor.file_offset != file->written_bytes()) {
      return absl::InvalidArgumentError(absl::StrCat(
          Path(shard), ": tensor ", t, " is to begin at byte ",
          tensor.file_offset, ", the file is at ", file->written_bytes()));
    }
    RETURN_IF_ERROR(SaveTensor(*file, tensor));
    KillPoint("files.save.tensor");
  }
  ASSIGN_OR_RETURN(const OutputFile::Sha256 sum,
                   file->Finish(shard.file_bytes));
  std::memcpy(shard.sha256, sum.data(), sum.size());
  bytes_ += shard.file_bytes;
  return absl::OkStatus();
}

absl::Status FileOperation::SaveTensor(OutputFile& file,
                                       const wire::FileTensor& tensor) {
  ASSIGN_OR_RETURN(const Place from,
                   PlaceAt(arena_, tensor.first_offset, tensor.first_dtype,
                           tensor.element_count));
  if (from.data == nullptr || !IsDType(tensor.file_dtype)) {
    return absl::InvalidArgumentError("a tensor to save without data or dtype");
  }
  const auto dtype = tensor.file_dtype;
  if (dtype == from.dtype) {
    return file.Write(from.data, tensor.element_count * DTypeBytes(dtype));
  }
  return ForPieces(tensor.element_count, [&](uint64_t at, uint64_t count) {
    ToF32(from.dtype, from.At(at), values_.data(), count);
    FromF32(dtype, values_.data(), raw_.data(), count);
    return file.Write(raw_.data(), count * DTypeBytes(dtype));
  });
}

}  // namespace

absl::StatusOr<uint64_t> DoFileOp(wire::Arena& arena, const wire::FileOp& op) {
  return FileOperation(arena, op).Do();
}

}  // namespace roundhouse::worker
