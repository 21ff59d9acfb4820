// What the hub says that a model consists of, and which files of it the daemon
// takes.
//
// Nothing of it is trusted: what is too much, of the wrong type, or has a size
// or a hash that none can be, is refused by name.  Pure; thread-safe.
#ifndef ROUNDHOUSE_SERVER_HUB_HUB_LISTING_H_
#define ROUNDHOUSE_SERVER_HUB_HUB_LISTING_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/upload_names.h"

namespace roundhouse {

// The text of a listing.
inline constexpr uint64_t kMaxListingBytes = 16 << 20;
// Files that a model on the hub has; one upload has no more, either.
inline constexpr size_t kMaxHubFiles = kMaxUploadFiles;
// A file without a SHA-256 is kept in memory until its git hash is checked;
// so is the index of shards.  All of one model's together:
inline constexpr uint64_t kMaxWholeBytes = 64 << 20;
// The text of that index.
inline constexpr uint64_t kMaxHubIndexBytes = 16 << 20;
// Names that an answer tells of those left out.
inline constexpr size_t kMaxLeftOutNames = 100;

struct HubFile {
  std::string name;
  uint64_t bytes = 0;
  // One of them is known of a file that is taken; lower-case hexadecimal.
  std::string sha256;    // of Git LFS
  std::string git_sha1;  // of the blob
  bool operator==(const HubFile&) const = default;
};

struct HubListing {
  std::string commit;  // 40 hexadecimal digits
  std::vector<HubFile> files;
};

// What is taken of it.
struct HubChoice {
  std::vector<HubFile> files;         // by name
  std::vector<std::string> left_out;  // each cut to kMaxRelativeNameBytes

  uint64_t bytes() const;
};

// kFailedPrecondition says what is wrong with the hub's answer.
absl::StatusOr<HubListing> ParseListing(const std::string& json);

// The file that names the shards of the weights; null: they are one file, or
// there are none.
const HubFile* ShardIndex(const HubListing& listing);

// config.json, tokenizer files, chat templates, safetensors, an adapter's two
// files, licence and README.  `index` is the text of ShardIndex, "" without
// one.  kFailedPrecondition: the hub has no model here that could be used, or
// names of a file that is needed neither size nor hash.
absl::StatusOr<HubChoice> ChooseFiles(const HubListing& listing,
                                      const std::string& index);

// How long a file may be that is read into memory.
uint64_t MaxWholeBytes(const HubFile& file);

// Whether these bytes are the file; kFailedPrecondition says what they are not.
absl::Status CheckWhole(const HubFile& file, const std::string& data);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_HUB_HUB_LISTING_H_
