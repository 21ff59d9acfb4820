// What a job would need and be, without storing it: answers of a dry run.
//
// Reads the store and files.  Thread-safe.  Blocks on the disk: not for the
// event loop's thread.
#ifndef ROUNDHOUSE_SERVER_ADMISSION_DRY_RUN_H_
#define ROUNDHOUSE_SERVER_ADMISSION_DRY_RUN_H_

#include <string>

#include "absl/status/statusor.h"
#include "server/admission/admitted_job.h"
#include "server/admission/job_paths.h"
#include "server/api/job_engine.h"
#include "server/store/store.h"

namespace roundhouse {

// `text` is the job file's.  Step times are those of an earlier job on
// `device_count` devices that trained in the same way, if who asks may read it.
// Errors are the store's.
absl::StatusOr<DryRunResult> DryRunOf(const AdmittedJob& job,
                                      const std::string& text,
                                      const JobStore& store,
                                      const JobPaths& paths, int device_count,
                                      const Caller& caller);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_ADMISSION_DRY_RUN_H_
