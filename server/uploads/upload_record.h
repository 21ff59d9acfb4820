// What the server knows of one upload, and its list of files as text.
//
// Values and pure functions; thread-safe.
#ifndef ROUNDHOUSE_SERVER_UPLOADS_UPLOAD_RECORD_H_
#define ROUNDHOUSE_SERVER_UPLOADS_UPLOAD_RECORD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/upload_names.h"

namespace roundhouse {

// One file has at most so many; far beyond what a disk has.
inline constexpr uint64_t kMaxUploadedFileBytes = uint64_t{1} << 50;
// A file counts at least so much of a limit: it takes an inode and a block.
inline constexpr uint64_t kMinFileBytes = 4'096;

struct UploadedFile {
  std::string name;  // below the upload's folder
  uint64_t bytes = 0;
  std::string sha256;  // lower-case hexadecimal; "": not known yet
  bool operator==(const UploadedFile&) const = default;
};
using UploadedFiles = std::vector<UploadedFile>;

// The numbers are stored: never renumber.
//
//   kArriving -> kFinished -> kRemoving -> (no row)
//   kArriving -> kRemoving
enum class UploadState { kArriving = 0, kFinished = 1, kRemoving = 2 };

struct UploadRecord {
  std::string id;  // 32 hexadecimal digits
  UploadKind kind = UploadKind::kDataset;
  std::string project;
  std::string name;
  int64_t version = 0;  // from 1; 0: it is not finished
  UploadState state = UploadState::kArriving;
  std::string owner;
  absl::Time create_time;
  absl::Time finish_time = absl::UnixEpoch();  // of a finished one
  std::shared_ptr<const UploadedFiles> files;  // shared by copies; never null

  uint64_t total_bytes() const;
  // "dataset:dates", with the version where it has one.
  std::string reference() const;
};

// kInvalidArgument, naming the file: CheckRelativeNames, a size beyond
// kMaxUploadedFileBytes, what is no hash.
absl::Status CheckFiles(const UploadedFiles& files);

// What they count of a limit, each at least kMinFileBytes.
uint64_t CountedBytes(const UploadedFiles& files);

// A line for each file, and back.  kDataLoss: it is no such text.
std::string ManifestText(const UploadedFiles& files);
absl::StatusOr<UploadedFiles> ParseManifest(absl::string_view text);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_UPLOADS_UPLOAD_RECORD_H_
