// What names in job files and questions mean: paths under the data roots,
// models by their ids on the hub, jobs and what jobs made; and whether whoever
// asks may use it.  That is decided here, where a name becomes a path: a path
// below the daemon's own folders is what a job or an export made, however it
// was named.
//
// Reads the store, and looks names up on the disk; opens nothing that people
// wrote.  Thread-safe.  Every method but FindJob blocks on the disk: not for
// the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_ADMISSION_WEIGHT_NAMES_H_
#define ROUNDHOUSE_SERVER_ADMISSION_WEIGHT_NAMES_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/access/names_of.h"
#include "server/admission/job_paths.h"
#include "server/admission/upload_names.h"
#include "server/dataset/dataset_inspector.h"
#include "server/spec/hub_cache.h"
#include "server/spec/job_file.h"
#include "server/spec/paths.h"
#include "server/store/store.h"
#include "server/weights/output_owner.h"

namespace roundhouse {

// A directory of trained weights.
struct NamedWeights {
  std::string path;              // "": a job's output, which is not there yet
  std::optional<JobRecord> job;  // that made them
};

class WeightNames {
 public:
  // `hf_cache` as hub_cache.h's, `uploads` as UploadNames'.  References outlive
  // it.
  WeightNames(const DataRoots& roots, const JobStore& store,
              const std::string& hf_cache, const JobPaths& paths,
              const Uploads* uploads)
      : roots_(roots),
        store_(store),
        hub_(hf_cache),
        paths_(paths),
        uploads_(uploads) {}

  // What a path in a job file means: under a data root, of "job:NAME", or of
  // "dataset:NAME" and "model:NAME", which were uploaded; of a model also a hub
  // id, or a path, in the Hugging Face cache. kInvalidArgument naming the
  // field; kPermissionDenied: it is of a project in which `user` has not the
  // role.
  absl::StatusOr<std::string> ResolvePath(const std::string& field,
                                          const std::string& path,
                                          PathKind kind,
                                          const NameUser& user) const;
  // ResolvePath; this outlives it.
  PathResolver resolver(const NameUser& user) const;
  // Makes paths of the file's spec what they mean, or "" and a fault of the
  // file.
  void ResolvePaths(JobFile* file, const NameUser& user) const;

  // A job by its id, or the newest of that output_name.  NOT_FOUND.
  absl::StatusOr<JobRecord> FindJob(const std::string& name) const;
  // The same for `user`: an output name of others is none to him, while an id
  // is theirs (MayUse tells).
  absl::StatusOr<JobRecord> FindJobFor(const std::string& name,
                                       const NameUser& user) const;
  // What a name of trained weights means: a job's id or output name (its
  // output), either with "/checkpoint-40" behind it, or a path as ResolvePath
  // has it.  An output's name that `user` may not use is no job's to him.
  // NOT_FOUND, or ResolvePath's errors.
  absl::StatusOr<NamedWeights> FindWeights(const std::string& field,
                                           const std::string& name,
                                           PathKind kind,
                                           const NameUser& user) const;
  // Whose a path is that lies in the daemon's own folders: without anything for
  // another, or where nobody knows.
  absl::StatusOr<OutputMark> OwnerOf(const std::string& path) const;
  // "it has checkpoint-20, checkpoint-40", for messages.
  std::string CheckpointsText(const JobRecord& job) const;

  const HubCache& hub() const { return hub_; }

 private:
  absl::StatusOr<std::string> Resolve(const std::string& field,
                                      const std::string& path, PathKind kind,
                                      const NameUser& user) const;
  // Beneath the data roots.  What `user` is not told of is not there, whatever
  // it is.
  absl::StatusOr<std::string> ResolveBelow(const std::string& field,
                                           const std::string& path,
                                           PathKind kind,
                                           const NameUser& user) const;
  absl::StatusOr<std::string> ResolveModel(const std::string& field,
                                           const std::string& name,
                                           HubNeed need,
                                           const NameUser& user) const;
  absl::StatusOr<std::string> ResolveJob(const std::string& field,
                                         const std::string& path,
                                         const NameUser& user) const;
  absl::StatusOr<NamedWeights> FindPath(const std::string& field,
                                        const std::string& name, PathKind kind,
                                        const NameUser& user) const;
  absl::Status MayUse(const std::string& field, const JobRecord& job,
                      const NameUser& user) const;
  // The same of a path that was resolved; kNotFound: he is not told of it.
  absl::Status MayUsePath(const std::string& field, const std::string& path,
                          const NameUser& user) const;

  const DataRoots& roots_;
  const JobStore& store_;
  const HubCache hub_;
  const JobPaths& paths_;
  const UploadNames uploads_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_ADMISSION_WEIGHT_NAMES_H_
