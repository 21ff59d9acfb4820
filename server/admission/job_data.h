// A job's prepared data: opened, and counted for the store.
//
// Blocks on the disk: not for the event loop's thread.  Thread-safe.
#ifndef ROUNDHOUSE_SERVER_ADMISSION_JOB_DATA_H_
#define ROUNDHOUSE_SERVER_ADMISSION_JOB_DATA_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/admission/admitted_job.h"
#include "server/dataset/dataset.h"
#include "server/spec/paths.h"
#include "server/store/store_records.h"

namespace roundhouse {

struct JobDatasets {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> validation;  // null: the job has none
};

// The splits in `folder`.  INVALID_ARGUMENT as Dataset::Open's.
absl::StatusOr<JobDatasets> OpenDatasets(const AdmittedJob& job,
                                         const std::string& folder);

struct CountedData {
  absl::StatusOr<DatasetCounts> counts;
  std::vector<std::string> warnings;  // told whether or not there are counts
};

// Counts what lies in `folder`, and checks that the job has steps left with it.
// INVALID_ARGUMENT: the data, or the job's checkpoint; DATA_LOSS: the disk.
CountedData CountDatasets(const AdmittedJob& job, const FileOpener& files,
                          const std::string& folder);

// A file that can't be read just now: the job waits, and is not to blame.
absl::Status OfDisk(const absl::Status& status);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_ADMISSION_JOB_DATA_H_
