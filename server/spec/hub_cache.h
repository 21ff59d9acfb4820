// Models of the server's Hugging Face cache, by their ids on the hub.  Nothing
// is ever downloaded.
//
//   <cache>/models--ORG--NAME/refs/main            a revision, of a branch
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

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace roundhouse {

// "Qwen/Qwen3-0.6B", or with a revision of it "Qwen/Qwen3-0.6B@REVISION".
struct HubName {
  std::string id;
  std::string revision = {};  // a commit, branch or tag; "": main
};

// What of a model is asked for.
enum class HubNeed { kWhole, kConfig };

class HubCache {
 public:
  // `directory` need not be there yet; "": there is none.
  explicit HubCache(std::string directory) : directory_(std::move(directory)) {}

  // "Qwen/Qwen3-0.6B": two words of letters, digits, '-', '_' and '.', as the
  // hub allows them.
  static bool IsId(const std::string& name);
  // Empty for what is neither an id nor one with "@REVISION" behind it.
  static std::optional<HubName> ParseName(const std::string& name);

  // The snapshot of that revision.  kInvalidArgument with `field`; where what
  // is needed is not there (PATH_NOT_FOUND) the message says what is missing
  // in which cache and how to get it there, and is to follow one that names
  // field and id.
  // A model whose folder `sees` refuses is not there.
  absl::StatusOr<std::string> Find(
      const std::string& field, const HubName& name,
      HubNeed need = HubNeed::kWhole,
      const std::function<bool(const std::string& folder)>& sees =
          [](const std::string&) { return true; }) const;

  // What the directory of a snapshot is called on the hub, with its commit;
  // empty for any other path.
  std::optional<HubName> NameOf(const std::string& path) const;

  // What the cache has a folder of, whole or not; by name, at most `limit`.
  std::vector<std::string> Ids(size_t limit) const;

  // Whether the absolute `path` names something in the cache.
  bool Contains(const std::string& path) const;

  // The real name of a directory in the cache that a resolved job file names.
  // kInvalidArgument with `field`.  REQUIRES: Contains(path).
  absl::StatusOr<std::string> Resolve(const std::string& field,
                                      const std::string& path,
                                      HubNeed need = HubNeed::kWhole) const;

 private:
  // kInvalidArgument naming what leads out of the cache; kNotFound, with its
  // name in the cache, what is not there.
  absl::Status CheckFile(const std::string& path) const;
  absl::Status CheckSnapshot(const std::string& path, HubNeed need) const;

  const std::string directory_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_SPEC_HUB_CACHE_H_
