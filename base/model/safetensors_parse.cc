// ParseSafetensorsHeader: one pass over the JSON without building it, since a
// header may have 100 MB, then the checks over the whole file.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/limits.h"
#include "base/model/json.h"
#include "base/model/safetensors.h"
#include "base/status.h"

namespace roundhouse {
namespace {

using Json = nlohmann::json;

// Offsets in `header` are relative to the data's begin until Finish.
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderReader(SafetensorsHeader* header) : header_(header) {}

  const std::string& error() const { return error_; }

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("true or false"); }
  bool binary(binary_t&) override { return Unexpected("binary"); }
  bool number_integer(number_integer_t value) override {
    return Unexpected(absl::StrCat("number ", value));
  }
  bool number_float(number_float_t, const string_t& text) override {
    return Unexpected(absl::StrCat("number ", text));
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (state_ == State::kShape) return AddDimension(value);
    if (state_ == State::kOffsets) return AddOffset(value);
    return Unexpected(absl::StrCat("number ", value));
  }

  bool string(string_t& value) override {
    if (state_ == State::kMetadataValue) {
      header_->metadata[key_] = value;
      state_ = State::kMetadata;
      return true;
    }
    if (state_ == State::kDType) return SetDType(value);
    return Unexpected(QuoteForError(value));
  }

  bool start_object(size_t) override {
    switch (state_) {
      case State::kStart:
        state_ = State::kTop;
        return true;
      case State::kTensorOpen:
        state_ = State::kTensor;
        has_dtype_ = has_shape_ = has_offsets_ = false;
        return true;
      case State::kMetadataOpen:
        state_ = State::kMetadata;
        return true;
      default:
        return Unexpected("an object");
    }
  }

  bool end_object() override {
    if (state_ == State::kTop) {
      state_ = State::kDone;
      return true;
    }
    if (state_ == State::kTensor) {
      for (auto [has, field] :
           {std::pair(has_dtype_, "dtype"), std::pair(has_shape_, "shape"),
            std::pair(has_offsets_, "data_offsets")}) {
        if (!has) return Fail(absl::StrCat(field, " is missing"));
      }
    }
    state_ = State::kTop;
    return true;
  }

  bool start_array(size_t) override {
    if (state_ == State::kShapeOpen) {
      state_ = State::kShape;
      return true;
    }
    if (state_ == State::kOffsetsOpen) {
      state_ = State::kOffsets;
      offset_count_ = 0;
      return true;
    }
    return Unexpected("a list");
  }

  bool end_array() override {
    if (state_ == State::kOffsets && offset_count_ != 2) {
      return Fail(absl::StrCat("data_offsets has ", offset_count_,
                               " numbers, 2 expected"));
    }
    state_ = State::kTensor;
    return true;
  }

  bool key(string_t& name) override {
    if (state_ == State::kTop) return OpenEntry(name);
    if (state_ == State::kMetadata) {
      if (header_->metadata.count(name) != 0) {
        return Fail(absl::StrCat("key ", QuoteForError(name), " twice"));
      }
      key_ = name;
      state_ = State::kMetadataValue;
      return true;
    }
    if (name == "dtype") return OpenField(&has_dtype_, State::kDType, name);
    if (name == "shape") return OpenField(&has_shape_, State::kShapeOpen, name);
    if (name == "data_offsets") {
      return OpenField(&has_offsets_, State::kOffsetsOpen, name);
    }
    return Fail(absl::StrCat("unknown field ", QuoteForError(name)));
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    entry_.clear();
    return Fail(
        absl::StrCat("byte ", 8 + position, ": ", JsonErrorText(error.what())));
  }

 private:
  enum class State {
    kStart,         // before the outermost object
    kTop,           // in it: a name comes
    kTensorOpen,    // after a name: the tensor's object comes
    kTensor,        // in it: a field comes
    kDType,         // its value comes
    kShapeOpen,     // its list comes
    kShape,         // in it
    kOffsetsOpen,   // its list comes
    kOffsets,       // in it
    kMetadataOpen,  // after __metadata__: its object comes
    kMetadata,      // in it: a key comes
    kMetadataValue,
    kDone,
  };

  bool OpenEntry(const std::string& name) {
    entry_ = name;
    if (name == "__metadata__") {
      if (std::exchange(has_metadata_, true)) return Fail("appears twice");
      state_ = State::kMetadataOpen;
      return true;
    }
    if (static_cast<int64_t>(header_->tensors.size()) >=
        kMaxSafetensorsTensors) {
      return Fail(
          absl::StrCat("more than ", kMaxSafetensorsTensors, " tensors"));
    }
    const auto [place, inserted] = header_->tensors.try_emplace(name);
    if (!inserted) return Fail("appears twice");
    tensor_ = &place->second;
    state_ = State::kTensorOpen;
    return true;
  }

  bool OpenField(bool* has, State next, const std::string& name) {
    if (std::exchange(*has, true)) return Fail(absl::StrCat(name, " twice"));
    state_ = next;
    return true;
  }

  bool SetDType(const std::string& name) {
    const std::optional<FileDType> dtype = FindFileDType(name);
    if (!dtype.has_value()) {
      return Fail(absl::StrCat("unknown dtype ", QuoteForError(name)));
    }
    tensor_->dtype = *dtype;
    state_ = State::kTensor;
    return true;
  }

  bool AddDimension(uint64_t value) {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Fail(absl::StrCat("dimension ", value, " is too large"));
    }
    if (static_cast<int64_t>(tensor_->shape.size()) >= kMaxTensorRank) {
      return Fail(absl::StrCat("more than ", kMaxTensorRank, " dimensions"));
    }
    tensor_->shape.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool AddOffset(uint64_t value) {
    if (offset_count_ >= 2) return Fail("data_offsets has over 2 numbers");
    (offset_count_ == 0 ? tensor_->begin : tensor_->end) = value;
    ++offset_count_;
    return true;
  }

  bool Unexpected(const std::string& found) {
    return Fail(absl::StrCat("unexpected ", found));
  }

  bool Fail(const std::string& message) {
    error_ = entry_.empty() ? message
                            : absl::StrCat("tensor ", QuoteForError(entry_),
                                           ": ", message);
    return false;
  }

  SafetensorsHeader* const header_;
  State state_ = State::kStart;
  std::string entry_;  // the outermost key in work
  std::string key_;    // of the metadata
  SafetensorsTensor* tensor_ = nullptr;
  bool has_metadata_ = false;
  bool has_dtype_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
  int offset_count_ = 0;
  std::string error_;
};

using NamedTensor = std::pair<const std::string, SafetensorsTensor>;

absl::Status TensorError(const std::string& path, const NamedTensor& tensor,
                         const std::string& message) {
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": tensor ", QuoteForError(tensor.first), ": ", message));
}

absl::Status CheckSize(const std::string& path, const NamedTensor& named) {
  const SafetensorsTensor& tensor = named.second;
  if (tensor.begin > tensor.end) {
    return TensorError(path, named,
                       absl::StrCat("data_offsets run backwards: ",
                                    tensor.begin, ", ", tensor.end));
  }
  const std::string text = absl::StrCat(FileDTypeName(tensor.dtype), " [",
                                        absl::StrJoin(tensor.shape, ", "), "]");
  const std::optional<uint64_t> bytes = TensorBytes(tensor.dtype, tensor.shape);
  if (!bytes.has_value()) {
    return TensorError(path, named, absl::StrCat(text, " is too large"));
  }
  if (*bytes != tensor.end - tensor.begin) {
    return TensorError(
        path, named,
        absl::StrCat(text, " takes ", *bytes, " bytes, data_offsets give ",
                     tensor.end - tensor.begin));
  }
  return absl::OkStatus();
}

// Each tensor begins where the one before ended.  Returns the data's bytes.
absl::StatusOr<uint64_t> CheckTiling(const std::string& path,
                                     const SafetensorsHeader& header) {
  std::vector<const NamedTensor*> order;
  order.reserve(header.tensors.size());
  for (const NamedTensor& tensor : header.tensors) {
    RETURN_IF_ERROR(CheckSize(path, tensor));
    order.push_back(&tensor);
  }
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.end) <
           std::pair(b->second.begin, b->second.end);
  });
  uint64_t end = 0;
  for (const NamedTensor* tensor : order) {
    const uint64_t begin = tensor->second.begin;
    if (begin != end) {
      return TensorError(
          path, *tensor,
          absl::StrCat(begin > end ? "hole before it" : "overlaps another",
                       ": begins at data byte ", begin, ", ", end,
                       " expected"));
    }
    end = tensor->second.end;
  }
  return end;
}

absl::Status CheckFileSize(const std::string& path, uint64_t found,
                           uint64_t header_bytes, uint64_t data_bytes) {
  const uint64_t expected = header_bytes + data_bytes;
  if (data_bytes <= std::numeric_limits<uint64_t>::max() - header_bytes &&
      found == expected) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": ", found < expected ? "truncated: " : "bytes after the data: ",
      found, " bytes found, ", expected, " expected"));
}

}  // namespace

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(
    const std::string& json, uint64_t file_size, const std::string& path) {
  if (json.size() > kMaxSafetensorsHeaderBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": header of ", json.size(), " bytes, at most ",
                     kMaxSafetensorsHeaderBytes, " are allowed"));
  }
  if (json.empty() || json[0] != '{') {
    return absl::InvalidArgumentError(
        absl::StrCat(path,
                     ": not a safetensors file: the header does not "
                     "begin with '{'"));
  }
  SafetensorsHeader header;
  HeaderReader reader(&header);
  if (!Json::sax_parse(json, &reader)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": header: ", reader.error()));
  }
  ASSIGN_OR_RETURN(const uint64_t data_bytes, CheckTiling(path, header));
  header.data_begin = sizeof(uint64_t) + json.size();
  header.file_size = file_size;
  RETURN_IF_ERROR(
      CheckFileSize(path, file_size, header.data_begin, data_bytes));
  for (auto& [name, tensor] : header.tensors) {
    tensor.begin += header.data_begin;
    tensor.end += header.data_begin;
  }
  return header;
}

}  // namespace roundhouse
