#include "worker/files/merge.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/convert.h"
#include "base/kill_point.h"
#include "base/status.h"
#include "worker/files/file_io.h"

namespace roundhouse::worker {
namespace {

constexpr uint64_t kPieceElements = kPieceBytes / sizeof(float);

// A matrix in a file, read as fp32.
class MatrixFile {
 public:
  static absl::StatusOr<MatrixFile> Open(const wire::FileMatrix& matrix,
                                         uint64_t rows, uint64_t columns) {
    const uint64_t file_bytes = matrix.file.identity.size_bytes;
    const uint64_t room =
        matrix.offset > file_bytes
            ? 0
            : (file_bytes - matrix.offset) / DTypeBytes(matrix.dtype);
    if (columns > room || rows > room / columns) {
      return absl::InvalidArgumentError(
          absl::StrCat(matrix.file.path, ": ", rows, " rows of ", columns,
                       " elements at byte ", matrix.offset, " end after its ",
                       file_bytes, " bytes"));
    }
    ASSIGN_OR_RETURN(std::unique_ptr<InputFile> file,
                     InputFile::Open(matrix.file));
    return MatrixFile(matrix, std::move(file), columns);
  }

  // Columns [column, column + width) of `rows` rows from `row` on, densely.
  absl::Status Read(uint64_t row, uint64_t rows, uint64_t column,
                    uint64_t width, float* target) {
    if (width == columns_) return ReadRun(row * columns_, rows * width, target);
    for (uint64_t i = 0; i < rows; ++i) {
      RETURN_IF_ERROR(
          ReadRun((row + i) * columns_ + column, width, target + i * width));
    }
    return absl::OkStatus();
  }

 private:
  MatrixFile(const wire::FileMatrix& matrix, std::unique_ptr<InputFile> file,
             uint64_t columns)
      : matrix_(matrix), file_(std::move(file)), columns_(columns) {}

  absl::Status ReadRun(uint64_t first, uint64_t count, float* target) {
    const uint64_t bytes = DTypeBytes(matrix_.dtype);
    raw_.resize(std::min(count, kPieceElements) * bytes);
    for (uint64_t done = 0; done < count; done += kPieceElements) {
      const uint64_t piece = std::min(kPieceElements, count - done);
      RETURN_IF_ERROR(file_->Read(matrix_.offset + (first + done) * bytes,
                                  raw_.data(), piece * bytes));
      ToF32(matrix_.dtype, raw_.data(), target + done, piece);
    }
    return absl::OkStatus();
  }

  wire::FileMatrix matrix_;
  std::unique_ptr<InputFile> file_;
  uint64_t columns_;
  std::vector<std::byte> raw_;
};

// The least magnitude that rounds to infinity.
float FirstInfinite(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return 65520.0f;
    case DType::kBF16:
      return 0x1.ffp127f;
    case DType::kF32:
      break;
  }
  return std::numeric_limits<float>::infinity();
}

// One command over its files.
class Merge {
 public:
  explicit Merge(const wire::MergeRows& merge)
      : merge_(merge),
        tile_(std::min(
            {merge.columns, kPieceElements,
             merge.rank == 0 ? kPieceElements : kMergeElements / merge.rank})),
        batch_(
            tile_ < merge.columns
                ? 1
                : std::min({kPieceElements / tile_,
                            kPieceElements / std::max<uint64_t>(merge.rank, 1),
                            std::max<uint64_t>(merge.row_count, 1)})) {}

  absl::StatusOr<uint64_t> Do();

 private:
  absl::Status OpenFiles();
  absl::Status DoTile(uint64_t column, uint64_t width);
  absl::Status DoRows(uint64_t row, uint64_t rows, uint64_t column,
                      uint64_t width);
  absl::Status CheckFinite(uint64_t row, uint64_t rows, uint64_t column,
                           uint64_t width) const;
  absl::Status WriteRows(uint64_t row, uint64_t rows, uint64_t column,
                         uint64_t width);

  const wire::MergeRows& merge_;
  const uint64_t tile_;            // columns at a time
  const uint64_t batch_;           // rows at a time
  std::vector<MatrixFile> files_;  // base, A, B
  std::unique_ptr<RangeFile> output_;
  std::vector<float> base_, a_, b_, sum_, merged_;
  std::vector<std::byte> raw_;
};

absl::Status CheckSizes(const wire::MergeRows& merge) {
  constexpr uint64_t kMost = uint64_t{1} << 40;  // no product overflows
  if (merge.columns > 0 && merge.columns < kMost && merge.row_count < kMost &&
      merge.first_row < kMost && merge.rank <= kPieceElements) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("rows ", merge.first_row, " + ", merge.row_count, " of ",
                   merge.columns, " columns, rank ", merge.rank));
}

absl::Status Merge::OpenFiles() {
  const uint64_t rows = merge_.first_row + merge_.row_count;
  ASSIGN_OR_RETURN(MatrixFile base,
                   MatrixFile::Open(merge_.base, rows, merge_.columns));
  files_.push_back(std::move(base));
  if (merge_.rank > 0) {
    ASSIGN_OR_RETURN(MatrixFile a, MatrixFile::Open(merge_.lora_a, merge_.rank,
                                                    merge_.columns));
    ASSIGN_OR_RETURN(MatrixFile b,
                     MatrixFile::Open(merge_.lora_b, rows, merge_.rank));
    files_.push_back(std::move(a));
    files_.push_back(std::move(b));
  }
  ASSIGN_OR_RETURN(output_, RangeFile::Open(merge_.output));
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> Merge::Do() {
  RETURN_IF_ERROR(OpenFiles());
  base_.resize(batch_ * tile_);
  merged_.resize(batch_ * tile_);
  raw_.resize(batch_ * tile_ * sizeof(float));
  a_.resize(merge_.rank * tile_);
  b_.resize(batch_ * merge_.rank);
  sum_.resize(tile_);
  for (uint64_t column = 0; column < merge_.columns; column += tile_) {
    RETURN_IF_ERROR(DoTile(column, std::min(tile_, merge_.columns - column)));
  }
  if (merge_.sync) RETURN_IF_ERROR(output_->Sync());
  return merge_.row_count * merge_.columns * DTypeBytes(merge_.output_dtype);
}

absl::Status Merge::DoTile(uint64_t column, uint64_t width) {
  if (merge_.rank > 0) {
    RETURN_IF_ERROR(files_[1].Read(0, merge_.rank, column, width, a_.data()));
  }
  for (uint64_t done = 0; done < merge_.row_count; done += batch_) {
    RETURN_IF_ERROR(DoRows(merge_.first_row + done,
                           std::min(batch_, merge_.row_count - done), column,
                           width));
    KillPoint("files.merge.rows");
  }
  return absl::OkStatus();
}

absl::Status Merge::DoRows(uint64_t row, uint64_t rows, uint64_t column,
                           uint64_t width) {
  RETURN_IF_ERROR(files_[0].Read(row, rows, column, width, base_.data()));
  if (merge_.rank > 0) {
    RETURN_IF_ERROR(files_[2].Read(row, rows, 0, merge_.rank, b_.data()));
    AddProduct({.base = base_.data(),
                .a = a_.data(),
                .b = b_.data(),
                .rows = rows,
                .columns = width,
                .rank = merge_.rank,
                .scale = static_cast<float>(merge_.scale)},
               sum_.data(), merged_.data());
  } else {
    std::copy_n(base_.begin(), rows * width, merged_.begin());
  }
  RETURN_IF_ERROR(CheckFinite(row, rows, column, width));
  return WriteRows(row, rows, column, width);
}

absl::Status Merge::CheckFinite(uint64_t row, uint64_t rows, uint64_t column,
                                uint64_t width) const {
  for (uint64_t i = 0; i < rows * width; ++i) {
    if (StaysFinite(merged_[i], merge_.output_dtype) ||
        !std::isfinite(base_[i])) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "row ", row + i / width, ", column ", column + i % width, ": ",
        merged_[i], " is no finite number in ", DTypeName(merge_.output_dtype),
        " (the base has ", base_[i], ")"));
  }
  return absl::OkStatus();
}

absl::Status Merge::WriteRows(uint64_t row, uint64_t rows, uint64_t column,
                              uint64_t width) {
  const uint64_t bytes = DTypeBytes(merge_.output_dtype);
  FromF32(merge_.output_dtype, merged_.data(), raw_.data(), rows * width);
  // Several rows only where they are whole.
  const uint64_t first = (row - merge_.first_row) * merge_.columns + column;
  return output_->Write(merge_.output_offset + first * bytes, raw_.data(),
                        rows * width * bytes);
}

}  // namespace

void AddProduct(const ScaledProduct& product, float* sum, float* merged) {
  const auto& [base, a, b, rows, columns, rank, scale] = product;
  for (uint64_t i = 0; i < rows; ++i) {
    std::fill_n(sum, columns, 0.0f);
    for (uint64_t k = 0; k < rank; ++k) {
      const float factor = b[i * rank + k];
      const float* const row = a + k * columns;
      for (uint64_t j = 0; j < columns; ++j) sum[j] += factor * row[j];
    }
    for (uint64_t j = 0; j < columns; ++j) {
      merged[i * columns + j] = base[i * columns + j] + scale * sum[j];
    }
  }
}

bool StaysFinite(float value, DType dtype) {
  return std::fabs(value) < FirstInfinite(dtype);
}

absl::StatusOr<uint64_t> DoMerge(const wire::MergeRows& merge) {
  RETURN_IF_ERROR(CheckSizes(merge));
  return Merge(merge).Do();
}

}  // namespace roundhouse::worker
