// Names of what people upload, and of the files in it, which the client and the
// server both check.
//
// Pure; thread-safe.
#ifndef ROUNDHOUSE_BASE_UPLOAD_NAMES_H_
#define ROUNDHOUSE_BASE_UPLOAD_NAMES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace roundhouse {

// Files of one upload.
inline constexpr size_t kMaxUploadFiles = 10'000;
// Bytes of all their names together.
inline constexpr size_t kMaxUploadNamesBytes = 1 << 20;
inline constexpr size_t kMaxRelativeNameBytes = 1024;
inline constexpr size_t kMaxNamePartBytes = 200;  // room for a suffix of ours
inline constexpr size_t kMaxNameParts = 8;
inline constexpr size_t kMaxUploadNameBytes = 64;
// The name of a job's result, or of an export beside it.
inline constexpr size_t kMaxOutputNameBytes = 64;

// A chunk's data, at most.
inline constexpr uint64_t kUploadChunkBytes = 1 << 20;
// Chunks may come before those that they follow, so far ahead; the client has
// no more on the way, and what is not whole of a user's requests must fit
// (PeerLimits).
inline constexpr uint64_t kUploadAheadBytes = 4 << 20;

// The numbers are stored: never renumber.
enum class UploadKind { kDataset = 1, kModel = 2 };
// "dataset".
const char* UploadKindName(UploadKind kind);

// kInvalidArgument with what is wrong unless `name` is letters, digits, '-',
// '_' and '.', a letter or digit first, kMaxUploadNameBytes at most.
absl::Status CheckUploadName(absl::string_view name);
// The name of a folder or file without what no name has, for who gives none;
// "" where nothing is left.
std::string UploadNameFrom(absl::string_view file_name);

// kInvalidArgument with what is wrong unless `name` is one of a file below a
// folder: parts between slashes, none empty or with a '.' first, in UTF-8,
// without control characters.
absl::Status CheckRelativeName(absl::string_view name);
// The same of all, and: at least one, not too many, none twice, and none that
// is a folder of another.
absl::Status CheckRelativeNames(const std::vector<std::string>& names);

// "dataset:speech/dates@3".
struct UploadReference {
  UploadKind kind = UploadKind::kDataset;
  std::string project;  // "": the one that the reference is made in
  std::string name;
  int64_t version = 0;  // 0: the newest
  bool operator==(const UploadReference&) const = default;
};
// None where the text has no prefix of a kind: it is a path.
// kInvalidArgument where it has one and is none all the same.
absl::StatusOr<std::optional<UploadReference>> ParseUploadReference(
    absl::string_view text);
std::string ToText(const UploadReference& reference);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_UPLOAD_NAMES_H_
