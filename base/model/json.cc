#include "base/model/json.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/visible_text.h"

namespace roundhouse {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxQuotedBytes = 160;

// At most so many bytes of it, whole characters, in one line.
std::string Visible(absl::string_view text, size_t max_bytes) {
  if (text.size() > max_bytes) {
    text = text.substr(0, max_bytes);
    text.remove_suffix(UnfinishedBytes({text.data(), text.size()}));
  }
  return VisibleLine({text.data(), text.size()});
}

// Walks the text once; builds nothing.
class JsonChecker : public nlohmann::json_sax<Json> {
 public:
  explicit JsonChecker(const JsonLimits& limits) : limits_(limits) {}

  const std::string& error() const { return error_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return Fail("binary value"); }
  bool start_object(size_t) override { return Open(); }
  bool end_object() override { return Close(); }
  bool start_array(size_t) override { return Open(); }
  bool end_array() override { return Close(); }

  bool key(string_t& name) override {
    if (static_cast<int64_t>(keys_.back().size()) >= limits_.max_keys) {
      return Fail(
          absl::StrCat("more than ", limits_.max_keys, " keys in one object"));
    }
    if (!keys_.back().insert(name).second) {
      return Fail(absl::StrCat("key ", QuoteForError(name), " appears twice"));
    }
    return true;
  }

  bool parse_error(size_t, const std::string&,
                   const nlohmann::detail::exception& error) override {
    return Fail(JsonErrorText(error.what()));
  }

 private:
  bool Open() {
    if (static_cast<int>(keys_.size()) >= limits_.max_depth) {
      return Fail(
          absl::StrCat("nested deeper than ", limits_.max_depth, " levels"));
    }
    keys_.emplace_back();
    return true;
  }

  bool Close() {
    keys_.pop_back();
    return true;
  }

  bool Fail(std::string error) {
    error_ = std::move(error);
    return false;
  }

  const JsonLimits limits_;
  std::vector<absl::flat_hash_set<std::string>> keys_;
  std::string error_;
};

}  // namespace

absl::Status CheckJson(const std::string& text, const std::string& path,
                       const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", text.size(), " bytes, at most ",
                     limits.max_bytes, " are read"));
  }
  JsonChecker checker(limits);
  if (!Json::sax_parse(text, &checker)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", checker.error()));
  }
  return absl::OkStatus();
}

std::string QuoteForError(absl::string_view text) {
  const bool cut = text.size() > kMaxQuotedBytes;
  return absl::StrCat("'", Visible(text, kMaxQuotedBytes), cut ? "...'" : "'");
}

std::string JsonErrorText(const char* what) {
  absl::string_view text(what);
  const size_t prefix_end = text.find("] ");
  if (prefix_end != absl::string_view::npos) text.remove_prefix(prefix_end + 2);
  constexpr size_t kMaxErrorBytes = 400;
  return Visible(text, kMaxErrorBytes);
}

JsonFields::JsonFields(const OrderedJson& object, std::string path,
                       std::string prefix)
    : object_(object), path_(std::move(path)), prefix_(std::move(prefix)) {}

const OrderedJson* JsonFields::Find(const char* field) const {
  const auto found = object_.find(field);
  if (found == object_.end() || found->is_null()) return nullptr;
  return &*found;
}

bool JsonFields::IsNull(const char* field) const {
  const auto found = object_.find(field);
  return found != object_.end() && found->is_null();
}

absl::StatusOr<int64_t> JsonFields::WholeNumber(const char* field, int64_t min,
                                                int64_t max) const {
  const OrderedJson* value = Find(field);
  if (value == nullptr) return Invalid(field, "missing");
  if (!value->is_number_integer()) {
    return WrongType(field, "a whole number", *value);
  }
  const bool fits = value->is_number_unsigned() &&
                    value->get<uint64_t>() >= static_cast<uint64_t>(min) &&
                    value->get<uint64_t>() <= static_cast<uint64_t>(max);
  if (!fits) {
    return Invalid(field, absl::StrCat(value->dump(), " is outside [", min,
                                       ", ", max, "]"));
  }
  return value->get<int64_t>();
}

absl::StatusOr<int64_t> JsonFields::Size(const char* field, int64_t max) const {
  return WholeNumber(field, 1, max);
}

absl::StatusOr<int64_t> JsonFields::SizeOr(const char* field, int64_t max,
                                           int64_t absent) const {
  if (!Has(field)) return absent;
  return WholeNumber(field, 1, max);
}

absl::StatusOr<int64_t> JsonFields::CountOr(const char* field, int64_t max,
                                            int64_t absent) const {
  if (!Has(field)) return absent;
  return WholeNumber(field, 0, max);
}

absl::StatusOr<double> JsonFields::NumberOr(const char* field,
                                            double absent) const {
  const OrderedJson* value = Find(field);
  if (value == nullptr) return absent;
  if (!value->is_number()) return WrongType(field, "a number", *value);
  return value->get<double>();
}

absl::StatusOr<double> JsonFields::Positive(const char* field) const {
  if (!Has(field)) return Invalid(field, "missing");
  return PositiveOr(field, 0);
}

absl::StatusOr<double> JsonFields::PositiveOr(const char* field,
                                              double absent) const {
  absl::StatusOr<double> number = NumberOr(field, absent);
  if (number.ok() && !(std::isfinite(*number) && *number > 0)) {
    return Invalid(field, absl::StrCat(*number, " is not greater than 0"));
  }
  return number;
}

absl::StatusOr<bool> JsonFields::BoolOr(const char* field, bool absent) const {
  const OrderedJson* value = Find(field);
  if (value == nullptr) return absent;
  if (!value->is_boolean()) return WrongType(field, "true or false", *value);
  return value->get<bool>();
}

absl::StatusOr<std::string> JsonFields::StringOr(
    const char* field, const std::string& absent) const {
  const OrderedJson* value = Find(field);
  if (value == nullptr) return absent;
  if (!value->is_string()) return WrongType(field, "a string", *value);
  return value->get<std::string>();
}

absl::Status JsonFields::Invalid(absl::string_view field,
                                 absl::string_view message) const {
  return absl::InvalidArgumentError(
      absl::StrCat(path_, ": ", prefix_, field, ": ", message));
}

absl::Status JsonFields::Unsupported(absl::string_view field,
                                     absl::string_view message) const {
  return absl::UnimplementedError(
      absl::StrCat(path_, ": ", prefix_, field, ": ", message));
}

absl::Status JsonFields::WrongType(absl::string_view field,
                                   absl::string_view expected,
                                   const OrderedJson& found) const {
  return Invalid(field, absl::StrCat("expected ", expected, ", found ",
                                     QuoteForError(found.dump())));
}

}  // namespace roundhouse
