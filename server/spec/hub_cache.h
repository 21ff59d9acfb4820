// Models of the server's Hugging Face cache, by their ids on the hub.  Nothing
// is ever downloaded.
//
//   <cache>/models--ORG--NAME/refs/main            a revision
//   <cache>/models--ORG--NAME/snapshots/REVISION/  the model's directory; its
//                                                  files are symbolic links
//   <cache>/models--ORG--NAME/blobs/               what they mean
//
// Every file must lie in the cache itself when all of its links are resolved.
// This is looked at when a model is named, so that an unfinished download is
// told early; who opens its files does so beneath the cache
// (server/spec/paths.h).
//
// Thread-safe.  Blocks on file reads.
#ifndef ROUNDHOUSE_SERVER_SPEC_HUB_CACHE_H_
#define ROUNDHOUSE_SERVER_SPEC_HUB_CACHE_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace roundhouse {

class HubCache {
 public:
  // `directory` need not be there yet; "": there is none.
  explicit HubCache(std::string directory) : directory_(std::move(directory)) {}

  // "Qwen/Qwen3-0.6B": two words of letters, digits, '-', '_' and '.', as the
  // hub allows them.
  static bool IsId(const std::string& name);

  // The snapshot of `id`'s main.  kInvalidArgument with `field`; where it is
  // not there (PATH_NOT_FOUND) the message says what is missing in which cache
  // and how to get it there, and is to follow one that names field and id.
  // REQUIRES: IsId(id).
  absl::StatusOr<std::string> Find(const std::string& field,
                                   const std::string& id) const;

  // What the cache has a folder of, whole or not; by name, at most `limit`.
  std::vector<std::string> Ids(size_t limit) const;

  // Whether the absolute `path` names something in the cache.
  bool Contains(const std::string& path) const;

  // The real name of a directory in the cache that a resolved job file names.
  // kInvalidArgument with `field`.  REQUIRES: Contains(path).
  absl::StatusOr<std::string> Resolve(const std::string& field,
                                      const std::string& path) const;

 private:
  // kInvalidArgument naming what leads out of the cache.
  absl::Status CheckFile(const std::string& path) const;
  absl::Status CheckSnapshot(const std::string& path) const;

  const std::string directory_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_SPEC_HUB_CACHE_H_
