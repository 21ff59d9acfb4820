// Adapter directories in PEFT's format: read and checked against a base model,
// and written.
//
//   adapter_config.json        LoraConfig's fields
//   adapter_model.safetensors  A and B of every adapted matrix, named as
//                              base/model's AdapterUnit names them
//
// An option of PEFT that would change what the adapter computes and is not
// implemented is refused by name, also one that this version does not know.
//
// Thread-safe.  What takes a directory blocks on its files.
#ifndef ROUNDHOUSE_SERVER_WEIGHTS_ADAPTER_FILES_H_
#define ROUNDHOUSE_SERVER_WEIGHTS_ADAPTER_FILES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/model/config.h"
#include "base/model/directory.h"
#include "base/model/parameters.h"
#include "server/spec/spec.h"

namespace roundhouse {

inline constexpr char kAdapterConfigName[] = "adapter_config.json";
// Its field that names the base.
inline constexpr char kBaseModel[] = "base_model_name_or_path";
inline constexpr char kAdapterWeightsName[] = "adapter_model.safetensors";

struct AdapterDirectory {
  std::string path;
  AdapterConfig config;
  std::string base_model;  // base_model_name_or_path; "" where it says none
  std::string revision;    // of a base on the hub; "": its main
  // sources[l][p] belongs to AdapterUnit(base, config, l).parameters[p], which
  // the file stores as one tensor.
  std::vector<std::vector<ParameterSource>> sources;
  std::vector<CheckedFile> files;  // that were read, as they were
};

// NOT_FOUND names the missing file; INVALID_ARGUMENT what is wrong with which
// file and field or tensor (shapes found and expected); UNIMPLEMENTED an option
// or dtype by name.
absl::StatusOr<AdapterDirectory> OpenAdapterDirectory(const FileOpener& files,
                                                      const std::string& path,
                                                      const ModelConfig& base);

// adapter_config.json without config.json: PEFT's directories.
bool IsAdapterDirectory(const FileOpener& files, const std::string& path);

// What the adapter at `path` says it was made for, as it says it, with
// "@REVISION" behind a name on the hub whose revision it says; no weights are
// looked at.  Errors as OpenAdapterDirectory's; INVALID_ARGUMENT where it
// says nothing.
absl::StatusOr<std::string> BaseOfAdapter(const FileOpener& files,
                                          const std::string& path);

// `directory`'s adapter_config.json alone: no sources.
absl::StatusOr<AdapterDirectory> ReadAdapterConfig(
    const FileOpener& files, const std::string& directory);

// The text of an adapter_config.json, without any file: no sources.  `path`
// names it in errors.
absl::StatusOr<AdapterDirectory> ParseAdapterConfig(const std::string& json,
                                                    const std::string& path);

// Whether both are the name of one model as far as names tell: a path's last
// component against the other's.
bool SameBaseName(const std::string& a, const std::string& b);

// The spec with the fields of its adapter where it says nothing of its own.
// INVALID_ARGUMENT for rank, alpha or modules other than the adapter's.
absl::StatusOr<JobSpec> WithAdapter(JobSpec spec,
                                    const AdapterDirectory& adapter);

// INVALID_ARGUMENT naming path, field and both values unless rank, alpha and
// modules are `wanted`'s; dropout may differ.
absl::Status CheckAdapterIs(const AdapterConfig& wanted,
                            const AdapterDirectory& adapter);

// adapter_config.json of an adapter for `base_model`, for inference; `revision`
// is that of a base on the hub, "" of any other.
std::string AdapterConfigJson(const AdapterConfig& adapter,
                              const std::string& base_model,
                              const std::string& revision = "");

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_WEIGHTS_ADAPTER_FILES_H_
