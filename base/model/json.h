// Reading JSON files of a model or adapter directory: bounded, strict, with
// errors that name the file and the field.
#ifndef ROUNDHOUSE_BASE_MODEL_JSON_H_
#define ROUNDHOUSE_BASE_MODEL_JSON_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace roundhouse {

// The keys keep the file's order.  Lookup is linear: only for small objects.
using OrderedJson = nlohmann::ordered_json;

struct JsonLimits {
  uint64_t max_bytes = 0;
  int max_depth = 0;     // nested objects and arrays
  int64_t max_keys = 0;  // of one object
};

// INVALID_ARGUMENT unless `text` is one JSON value in UTF-8 within `limits` and
// no object has a key twice.  Says the line where the parser stopped.
absl::Status CheckJson(const std::string& text, const std::string& path,
                       const JsonLimits& limits);

// Text from a file as it may stand in an error message: escaped and cut.
std::string QuoteForError(absl::string_view text);

// The parser's message without its library prefix.
std::string JsonErrorText(const char* what);

// Typed access to one object's fields.  A field that is null counts as absent.
// Errors are INVALID_ARGUMENT naming file, field, what was found and expected.
class JsonFields {
 public:
  // REQUIRES: `object` is a JSON object and outlives this.  `prefix` comes
  // before each field's name in errors: "rope_parameters."
  JsonFields(const OrderedJson& object, std::string path, std::string prefix);

  bool Has(const char* field) const { return Find(field) != nullptr; }
  bool IsNull(const char* field) const;  // given, as null
  const OrderedJson* Find(const char* field) const;

  // Within [1, max].
  absl::StatusOr<int64_t> Size(const char* field, int64_t max) const;
  absl::StatusOr<int64_t> SizeOr(const char* field, int64_t max,
                                 int64_t absent) const;
  // Within [0, max].
  absl::StatusOr<int64_t> CountOr(const char* field, int64_t max,
                                  int64_t absent) const;
  // A finite number greater than 0.
  absl::StatusOr<double> Positive(const char* field) const;
  absl::StatusOr<double> PositiveOr(const char* field, double absent) const;
  absl::StatusOr<double> NumberOr(const char* field, double absent) const;
  absl::StatusOr<bool> BoolOr(const char* field, bool absent) const;
  absl::StatusOr<std::string> StringOr(const char* field,
                                       const std::string& absent) const;

  // Errors about `field`: "<path>: <prefix><field>: <message>".
  absl::Status Invalid(absl::string_view field,
                       absl::string_view message) const;
  absl::Status Unsupported(absl::string_view field,
                           absl::string_view message) const;
  absl::Status WrongType(absl::string_view field, absl::string_view expected,
                         const OrderedJson& found) const;

 private:
  // REQUIRES: 0 <= min.
  absl::StatusOr<int64_t> WholeNumber(const char* field, int64_t min,
                                      int64_t max) const;

  const OrderedJson& object_;
  const std::string path_;
  const std::string prefix_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_MODEL_JSON_H_
