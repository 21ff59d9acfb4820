// Files that come over in chunks into a folder of this machine.
//
// A file is there from its beginning; chunks may be written ahead by what
// ChunkRun allows, so that after a death all of a file but its last
// kUploadAheadBytes is known to be there.
//
// Thread-safe.  Blocking.
#ifndef ROUNDHOUSE_CLIENT_TRANSFER_ARRIVING_FILES_H_
#define ROUNDHOUSE_CLIENT_TRANSFER_ARRIVING_FILES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "client/transfer/own_folder.h"

namespace roundhouse::client {

struct ArrivingFile {
  std::string name;  // checked: CheckRelativeName
  uint64_t bytes = 0;
};

class ArrivingFiles {
 public:
  // What is there already of `files` is gone on with where `key`, which says
  // what they are, is what was said of them then; else it goes.  Errors as
  // RemoveOwnFolder's.
  static absl::StatusOr<std::unique_ptr<ArrivingFiles>> Open(
      const std::string& folder, const std::string& key,
      std::vector<ArrivingFile> files);
  ArrivingFiles(const ArrivingFiles&) = delete;
  ArrivingFiles& operator=(const ArrivingFiles&) = delete;

  // How much of each is there.
  std::vector<uint64_t> there() const;
  // How much of the file is there then.
  absl::StatusOr<uint64_t> Put(size_t file, uint64_t offset,
                               absl::string_view data);
  // The SHA-256 of one that is whole, read again.
  absl::StatusOr<std::string> Hash(size_t file) const;
  // It was spoilt, and comes again.
  absl::Status Drop(size_t file);
  // Syncs all of them, and gives the folder the name `directory`.
  // kAlreadyExists: something is there and is kept.  Nothing may be called
  // after it.
  absl::Status Publish(const std::string& directory, WhatIsThere what);

 private:
  struct Part {
    uint64_t there = 0;
    std::map<uint64_t, uint64_t> ahead;  // ends by beginnings
  };

  ArrivingFiles(std::string folder, std::vector<ArrivingFile> files)
      : folder_(std::move(folder)), files_(std::move(files)) {}
  absl::Status Prepare(const std::string& key);
  std::string PathOf(size_t file) const;

  const std::string folder_;
  const std::vector<ArrivingFile> files_;
  mutable Mutex mutex_;
  std::vector<Part> parts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_TRANSFER_ARRIVING_FILES_H_
