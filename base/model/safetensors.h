// The safetensors format: u64 little-endian header length, JSON header, data.
//
//   {"__metadata__": {"format": "pt"},
//    "<name>": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
//
// Everything but ReadSafetensorsHeader is a pure function.  Errors are
// INVALID_ARGUMENT naming file, tensor and bytes, unless said otherwise.
// Source: the format's description in the safetensors project's README.
#ifndef ROUNDHOUSE_BASE_MODEL_SAFETENSORS_H_
#define ROUNDHOUSE_BASE_MODEL_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/dtype.h"
#include "base/model/input_file.h"

namespace roundhouse {

// Element types the format knows; DType are those that are trained.
enum class FileDType {
  kBool,
  kU8,
  kI8,
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,
  kU16,
  kI16,
  kF16,
  kBF16,
  kU32,
  kI32,
  kF32,
  kU64,
  kI64,
  kF64,
};

const char* FileDTypeName(FileDType dtype);  // as in the file: "BF16"
uint64_t FileDTypeBytes(FileDType dtype);    // of one element
std::optional<FileDType> FindFileDType(absl::string_view name);
FileDType ToFileDType(DType dtype);
std::optional<DType> ToDType(FileDType dtype);  // none: not trainable

// The data lies in [begin, end) of the file, row-major and dense.
struct SafetensorsTensor {
  FileDType dtype = FileDType::kF32;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // bytes from the start of the file
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::map<std::string, SafetensorsTensor> tensors;
  std::map<std::string, std::string> metadata;
  uint64_t data_begin = 0;  // bytes from the start of the file
  uint64_t file_size = 0;
  CheckedFile file;  // that it was read from, by ReadSafetensorsHeader
};

// Checks all of it: JSON, known dtypes, sizes that match dtype and shape, no
// name twice, data without hole or overlap, and that the file ends where the
// data does.  `json` is the header without its length.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(
    const std::string& json, uint64_t file_size, const std::string& path);

// Reads and parses a file's header; also fails as files.Open does.
absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(
    const FileOpener& files, const std::string& path);

// A tensor to be written.
struct SafetensorsEntry {
  std::string name;
  FileDType dtype = FileDType::kF32;
  std::vector<int64_t> shape;
};

// What precedes the data in a new file, and where each tensor's data goes.
struct SafetensorsPrefix {
  std::string bytes;              // length and padded header: a multiple of 8
  std::vector<uint64_t> offsets;  // bytes from the start of the file
  uint64_t file_size = 0;         // bytes
};

// Data lies in the order given, without gaps: put wider dtypes first to keep
// every tensor aligned to its element.  `metadata` is written besides
// format=pt.  Fails on a name given twice or reserved and on what the format
// can't hold.
absl::StatusOr<SafetensorsPrefix> BuildSafetensorsHeader(
    const std::vector<SafetensorsEntry>& tensors,
    const std::map<std::string, std::string>& metadata = {});

// dtype's bytes times the shape's product; none where it exceeds int64.
std::optional<uint64_t> TensorBytes(FileDType dtype,
                                    const std::vector<int64_t>& shape);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_MODEL_SAFETENSORS_H_
