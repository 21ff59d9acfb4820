#include "base/model/safetensors.h"

#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/model/input_file.h"
#include "base/model/json.h"
#include "base/status.h"

namespace roundhouse {
namespace {

constexpr uint64_t kHeaderAlignBytes = 8;

struct FileDTypeRow {
  FileDType dtype;
  const char* name;
  uint64_t bytes;
};

// Indexed by FileDType.
constexpr FileDTypeRow kFileDTypes[] = {
    {FileDType::kBool, "BOOL", 1},      {FileDType::kU8, "U8", 1},
    {FileDType::kI8, "I8", 1},          {FileDType::kF8E4M3, "F8_E4M3", 1},
    {FileDType::kF8E5M2, "F8_E5M2", 1}, {FileDType::kF8E8M0, "F8_E8M0", 1},
    {FileDType::kU16, "U16", 2},        {FileDType::kI16, "I16", 2},
    {FileDType::kF16, "F16", 2},        {FileDType::kBF16, "BF16", 2},
    {FileDType::kU32, "U32", 4},        {FileDType::kI32, "I32", 4},
    {FileDType::kF32, "F32", 4},        {FileDType::kU64, "U64", 8},
    {FileDType::kI64, "I64", 8},        {FileDType::kF64, "F64", 8},
};

const FileDTypeRow& Row(FileDType dtype) {
  const FileDTypeRow& row = kFileDTypes[static_cast<size_t>(dtype)];
  ROUNDHOUSE_CHECK(row.dtype == dtype);
  return row;
}

uint64_t LoadLittleEndian(const unsigned char* bytes) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | bytes[i];
  return value;
}

void AppendLittleEndian(uint64_t value, std::string* to) {
  for (int i = 0; i < 8; ++i) {
    to->push_back(static_cast<char>(value >> (8 * i) & 0xff));
  }
}

// The JSON library's own view of it: what it would have to replace is none.
bool IsUtf8(const std::string& text) {
  const auto replace = nlohmann::json::error_handler_t::replace;
  const std::string dumped = nlohmann::json(text).dump(-1, ' ', false, replace);
  return nlohmann::json::parse(dumped) == text;
}

absl::Status EntryError(const SafetensorsEntry& entry, const char* message) {
  return absl::InvalidArgumentError(absl::StrCat(
      "tensor ", QuoteForError(entry.name), " cannot be written: ", message));
}

// Fills `offsets`, relative to the data, and returns the data's bytes.
absl::StatusOr<uint64_t> PlaceTensors(
    const std::vector<SafetensorsEntry>& entries,
    std::vector<uint64_t>* offsets) {
  if (static_cast<int64_t>(entries.size()) > kMaxSafetensorsTensors) {
    return absl::InvalidArgumentError(
        absl::StrCat(entries.size(), " tensors in one file, at most ",
                     kMaxSafetensorsTensors, " are allowed"));
  }
  std::set<absl::string_view> names;
  uint64_t end = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.name == "__metadata__") return EntryError(entry, "reserved name");
    if (!IsUtf8(entry.name)) return EntryError(entry, "not UTF-8");
    if (!names.insert(entry.name).second) {
      return EntryError(entry, "the name is given twice");
    }
    if (static_cast<int64_t>(entry.shape.size()) > kMaxTensorRank) {
      return EntryError(entry, "too many dimensions");
    }
    const std::optional<uint64_t> bytes = TensorBytes(entry.dtype, entry.shape);
    constexpr uint64_t kMaxBytes = std::numeric_limits<int64_t>::max() / 2;
    if (!bytes.has_value() || *bytes > kMaxBytes - end) {
      return EntryError(entry, "its size overflows");
    }
    offsets->push_back(end);
    end += *bytes;
  }
  return end;
}

nlohmann::ordered_json EntryJson(const SafetensorsEntry& entry,
                                 uint64_t begin) {
  const uint64_t bytes = *TensorBytes(entry.dtype, entry.shape);
  nlohmann::ordered_json json;
  json["dtype"] = FileDTypeName(entry.dtype);
  json["shape"] = entry.shape;
  json["data_offsets"] = {begin, begin + bytes};
  return json;
}

absl::Status CheckMetadata(const std::map<std::string, std::string>& metadata) {
  for (const auto& [key, value] : metadata) {
    if (!IsUtf8(key) || !IsUtf8(value)) {
      return absl::InvalidArgumentError(
          absl::StrCat("metadata ", QuoteForError(key), ": not UTF-8"));
    }
  }
  return absl::OkStatus();
}

// The text grows by entries: an ordered_json of all would be quadratic.
std::string HeaderJson(const std::vector<SafetensorsEntry>& entries,
                       const std::vector<uint64_t>& offsets,
                       std::map<std::string, std::string> metadata) {
  metadata["format"] = "pt";
  std::string json = "{\"__metadata__\":";
  json += nlohmann::json(metadata).dump();
  for (size_t i = 0; i < entries.size(); ++i) {
    absl::StrAppend(&json, ",", nlohmann::json(entries[i].name).dump(), ":",
                    EntryJson(entries[i], offsets[i]).dump());
  }
  return json + "}";
}

}  // namespace

const char* FileDTypeName(FileDType dtype) { return Row(dtype).name; }

uint64_t FileDTypeBytes(FileDType dtype) { return Row(dtype).bytes; }

std::optional<FileDType> FindFileDType(absl::string_view name) {
  for (const FileDTypeRow& row : kFileDTypes) {
    if (name == row.name) return row.dtype;
  }
  return std::nullopt;
}

FileDType ToFileDType(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return FileDType::kF32;
    case DType::kBF16:
      return FileDType::kBF16;
    case DType::kF16:
      return FileDType::kF16;
  }
  ROUNDHOUSE_CHECK(false) << static_cast<uint32_t>(dtype);
  return FileDType::kF32;
}

std::optional<DType> ToDType(FileDType dtype) {
  for (DType trained : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (ToFileDType(trained) == dtype) return trained;
  }
  return std::nullopt;
}

std::optional<uint64_t> TensorBytes(FileDType dtype,
                                    const std::vector<int64_t>& shape) {
  constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
  // A dimension of 0 makes the product 0, whatever the others' would be.
  bool empty = false;
  for (int64_t dimension : shape) {
    if (dimension < 0) return std::nullopt;
    empty = empty || dimension == 0;
  }
  if (empty) return 0;
  uint64_t bytes = FileDTypeBytes(dtype);
  for (int64_t dimension : shape) {
    if (bytes > kMax / static_cast<uint64_t>(dimension)) return std::nullopt;
    bytes *= static_cast<uint64_t>(dimension);
  }
  return bytes;
}

absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(
    const FileOpener& files, const std::string& path) {
  ASSIGN_OR_RETURN(const InputFile file, files.Open(path));
  RETURN_IF_ERROR(CheckNoLfsPointer(file));
  unsigned char prefix[sizeof(uint64_t)];
  if (file.size_bytes() < sizeof(prefix)) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": truncated: ", file.size_bytes(),
        " bytes found, a safetensors file has at least ", sizeof(prefix)));
  }
  RETURN_IF_ERROR(
      file.Read(0, sizeof(prefix), reinterpret_cast<char*>(prefix)));
  const uint64_t header_bytes = LoadLittleEndian(prefix);
  if (header_bytes > kMaxSafetensorsHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": header of ", header_bytes, " bytes, at most ",
        kMaxSafetensorsHeaderBytes, " are allowed; is it a safetensors file?"));
  }
  if (header_bytes > file.size_bytes() - sizeof(prefix)) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": truncated: ", file.size_bytes(), " bytes found, the header ",
        "alone ends at byte ", sizeof(prefix) + header_bytes));
  }
  std::string json(header_bytes, '\0');
  RETURN_IF_ERROR(file.Read(sizeof(prefix), header_bytes, json.data()));
  ASSIGN_OR_RETURN(SafetensorsHeader header,
                   ParseSafetensorsHeader(json, file.size_bytes(), path));
  header.file = file.checked();
  return header;
}

absl::StatusOr<SafetensorsPrefix> BuildSafetensorsHeader(
    const std::vector<SafetensorsEntry>& tensors,
    const std::map<std::string, std::string>& metadata) {
  RETURN_IF_ERROR(CheckMetadata(metadata));
  SafetensorsPrefix prefix;
  ASSIGN_OR_RETURN(const uint64_t data_bytes,
                   PlaceTensors(tensors, &prefix.offsets));
  std::string json = HeaderJson(tensors, prefix.offsets, metadata);
  while (json.size() % kHeaderAlignBytes != 0) json.push_back(' ');
  if (json.size() > kMaxSafetensorsHeaderBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("header of ", json.size(), " bytes, at most ",
                     kMaxSafetensorsHeaderBytes, " are allowed"));
  }
  AppendLittleEndian(json.size(), &prefix.bytes);
  prefix.bytes += json;
  for (uint64_t& offset : prefix.offsets) offset += prefix.bytes.size();
  prefix.file_size = prefix.bytes.size() + data_bytes;
  return prefix;
}

}  // namespace roundhouse
