#include "server/admission/admission.h"

#include <utility>

#include "base/files/durable_file.h"
#include "base/files/file_site.h"
#include "base/status.h"

namespace roundhouse {

absl::StatusOr<std::unique_ptr<Admission>> Admission::Create(
    const AdmissionOptions& options, const JobStore& store) {
  // Checkpoints and outputs of this server's jobs can be named too.
  DataRootsOptions roots = {.roots = options.data_roots,
                            .owned = options.owned_roots,
                            .closed = options.room.state_dir,
                            .hub_cache = options.hf_cache};
  if (options.uploads != nullptr) {
    roots.own.push_back(options.uploads->directory());
  }
  const JobPaths paths(options.room.state_dir);
  for (const std::string& own : {paths.jobs(), paths.outputs()}) {
    RETURN_IF_ERROR(MakeFolderDurably(kStateFolder, own));
    roots.own.push_back(own);
  }
  ASSIGN_OR_RETURN(auto opened, DataRoots::Create(roots));
  return std::unique_ptr<Admission>(
      new Admission(options, store, std::move(opened)));
}

Admission::Admission(const AdmissionOptions& options, const JobStore& store,
                     std::unique_ptr<DataRoots> roots)
    : paths_(options.room.state_dir),
      fit_(options.room),
      roots_(std::move(roots)),
      names_(*roots_, store, options.hf_cache, paths_, options.uploads),
      checker_(*roots_, store, names_, paths_, fit_),
      admitted_(checker_),
      helpers_(options.dataset_helper, *roots_, store, paths_),
      exports_(*roots_, names_, checker_) {}

}  // namespace roundhouse
