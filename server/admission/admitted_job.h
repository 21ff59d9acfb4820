// A job that was checked, with all that checking it found: made once, when it
// is submitted or when an earlier daemon's job is taken up, and passed on to
// whatever follows.  What was checked is what is used: its files are compared
// with what they were wherever they are really opened (base/files/
// checked_file.h).
//
// A plain value; immutable once it is shared.
#ifndef ROUNDHOUSE_SERVER_ADMISSION_ADMITTED_JOB_H_
#define ROUNDHOUSE_SERVER_ADMISSION_ADMITTED_JOB_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/model/directory.h"
#include "server/admission/source_files.h"
#include "server/api/job_engine.h"
#include "server/planning/job_needs.h"
#include "server/spec/spec.h"
#include "server/weights/adapter_files.h"
#include "server/weights/manifest.h"

namespace roundhouse {

struct AdmittedJob {
  ResolvedSpec spec;  // its paths are resolved
  ModelDirectory model;
  std::optional<AdapterDirectory> adapter;  // that the spec names
  // Its need of host memory; an error is that of its plan.
  absl::StatusOr<HostNeed> host = absl::UnknownError("not computed");
  // BaseKey of the model, for a job that shares a base's weights; "": none.
  std::string base_key;

  // The rest is of a submit; a job that is taken up is without.
  SourceFiles files;
  JobNeeds needs;
  // The manifest of the checkpoint that it goes on from; none: it does not.
  std::optional<CheckpointManifest> resumed;
  std::vector<std::string> warnings;

  int64_t start_step() const { return resumed.has_value() ? resumed->step : 0; }
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_ADMISSION_ADMITTED_JOB_H_
