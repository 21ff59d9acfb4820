// Which models there are: directories under the data roots, and what jobs made.
//
// Reads configurations and headers of weight files, never weights.
#ifndef ROUNDHOUSE_SERVER_PLANNING_MODEL_CATALOG_H_
#define ROUNDHOUSE_SERVER_PLANNING_MODEL_CATALOG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/model/directory.h"
#include "server/access/names_of.h"
#include "server/planning/device_room.h"
#include "server/spec/hub_cache.h"
#include "server/store/store.h"

namespace roundhouse {

inline constexpr int kMaxModelDepth = 6;  // folders below a root
inline constexpr size_t kMaxListedModels = 200;
inline constexpr int64_t kMaxFoldersLookedAt = 20000;

// What a job with default settings needs of the host.
struct MethodNeed {
  uint64_t host_bytes = 0;
  bool fits = false;
  std::string problem;  // why it does not
};

struct ModelInfo {
  std::string name;  // for model_name_or_path: the path, job:NAME or a hub id
  std::string path;
  std::string family;  // model_type; "" of an adapter
  int64_t parameters = 0;
  std::string dtype;  // of the files
  uint64_t bytes = 0;
  bool adapter = false;
  std::string base_model;  // as the adapter names it
  std::optional<MethodNeed> full, lora;
  std::string problem;  // why it can't be used
};

struct ModelList {
  std::vector<ModelInfo> models;
  bool truncated = false;  // a limit above was met
};

struct ModelFolders {
  std::vector<std::string> paths;  // by name
  bool truncated = false;
};

// Folders with a config.json or an adapter_config.json under `roots`, but
// not below another such folder, `left_out`, a symbolic link, a name with a dot
// before it or that of a directory being written ("tmp-").  What can't be read
// is passed over.  Blocks on the disk.
ModelFolders FindModelFolders(const FileOpener& files,
                              const std::vector<std::string>& roots,
                              const std::vector<std::string>& left_out);

struct ModelCatalogOptions {
  std::string state_dir;  // its outputs are listed by job
  std::string hf_cache;   // hub_cache.h; "": none
  int device_count = 1;
  DeviceRoom device;
  uint64_t host_limit_bytes = 0;
};

// Thread-safe; every method blocks on the disk.
class ModelCatalog {
 public:
  // `store` and `files` outlive it.
  ModelCatalog(ModelCatalogOptions options, const JobStore& store,
               const DataRoots& files, NamesOf names);

  // Outputs of jobs, newest first; the folders under the data roots; models of
  // the Hugging Face cache, as far as `caller` may look at them.  At most
  // kMaxListedModels of each.
  absl::StatusOr<ModelList> List(const Caller& caller) const;
  // As model_name_or_path names it; errors as those of a job file.
  absl::StatusOr<ModelInfo> Get(const std::string& name,
                                const Caller& caller) const;

  uint64_t host_limit_bytes() const { return options_.host_limit_bytes; }

 private:
  ModelInfo Describe(const std::string& name, const std::string& path) const;
  ModelInfo DescribeCached(const std::string& id) const;
  void DescribeModel(ModelInfo* info) const;
  MethodNeed NeedWith(const char* method,
                      const ModelDirectory& directory) const;

  const ModelCatalogOptions options_;
  const DataRoots& files_;
  const HubCache hub_;
  const JobStore& store_;
  const NamesOf names_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_PLANNING_MODEL_CATALOG_H_
