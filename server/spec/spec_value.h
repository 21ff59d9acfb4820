// The text of a job file as a tree of values with line numbers.  YAML 1.2 core
// typing of plain scalars; JSON is read as the YAML it is.  The only file that
// knows the YAML library.
//
// Pure functions; thread-safe.
#ifndef ROUNDHOUSE_SERVER_SPEC_SPEC_VALUE_H_
#define ROUNDHOUSE_SERVER_SPEC_SPEC_VALUE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace roundhouse {

// Limits on what is accepted; beyond them kInvalidArgument.
inline constexpr size_t kMaxJobTextBytes = 1 << 20;
// Brackets, commas, quotes and what else begins or ends a value, wherever they
// stand: the YAML library reads a whole [...] or {...} before it says anything
// of it, a quarter of a kilobyte for each of these.
inline constexpr int kMaxSpecMarks = 1 << 16;
inline constexpr int kMaxSpecValues = 10000;
inline constexpr int kMaxSpecDepth = 8;

struct SpecEntry;

struct SpecValue {
  enum class Kind { kNull, kBool, kInteger, kNumber, kString, kList, kMap };

  Kind kind = Kind::kNull;
  int line = 0;                    // From 1.
  std::string text;                // Scalars: as written, without quotes.
  std::vector<SpecValue> items;    // kList
  std::vector<SpecEntry> entries;  // kMap
};

struct SpecEntry {
  SpecValue key, value;
};

// "the number 3", "the text \"abc\"", "a list": for messages.
std::string Describe(const SpecValue& value);

// Who wrote the text: a caller's has all of the limits, ours all but
// kMaxSpecMarks, since a resolved spec quotes what it was made from.
enum class SpecWriter { kCaller, kUs };

// The document's root.  kInvalidArgument with the line for bad syntax, more
// than one document, tags, anchors, keys that are not plain text, a key given
// twice in one mapping below the root, and for the limits above.  `file_name`
// starts every message.
absl::StatusOr<SpecValue> ParseSpecText(const std::string& text,
                                        const std::string& file_name,
                                        SpecWriter writer);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_SPEC_SPEC_VALUE_H_
