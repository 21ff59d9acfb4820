// What lets jobs, exports and samples in, put together: names, checks, and the
// jobs that were admitted.
//
// Thread-safe; blocks on the disk where its parts do.
#ifndef ROUNDHOUSE_SERVER_ADMISSION_ADMISSION_H_
#define ROUNDHOUSE_SERVER_ADMISSION_ADMISSION_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/admission/admitted_jobs.h"
#include "server/admission/export_names.h"
#include "server/admission/helper_options.h"
#include "server/admission/job_checker.h"
#include "server/admission/job_fit.h"
#include "server/admission/job_paths.h"
#include "server/admission/weight_names.h"
#include "server/dataset/dataset_helper.h"
#include "server/spec/paths.h"
#include "server/store/store.h"
#include "server/uploads/uploads.h"

namespace roundhouse {

struct AdmissionOptions {
  ServerRoom room;
  std::vector<std::string> data_roots;
  std::vector<OwnedRoot> owned_roots;
  std::string hf_cache;  // hub_cache.h; "": none
  HelperProgram dataset_helper;
  const Uploads* uploads = nullptr;  // null: none; outlives what it is given to
};

class Admission {
 public:
  // Makes the folders of jobs and outputs where they are not there.  `store`
  // outlives it.
  static absl::StatusOr<std::unique_ptr<Admission>> Create(
      const AdmissionOptions& options, const JobStore& store);
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;

  const JobPaths& paths() const { return paths_; }
  const DataRoots& roots() const { return *roots_; }
  const WeightNames& names() const { return names_; }
  const JobChecker& checker() const { return checker_; }
  AdmittedJobs& admitted() { return admitted_; }
  const HelperOptions& helpers() const { return helpers_; }
  const ExportNames& exports() const { return exports_; }

 private:
  Admission(const AdmissionOptions& options, const JobStore& store,
            std::unique_ptr<DataRoots> roots);

  const JobPaths paths_;
  const JobFit fit_;
  const std::unique_ptr<DataRoots> roots_;  // own jobs and outputs last
  const WeightNames names_;
  const JobChecker checker_;
  AdmittedJobs admitted_;
  const HelperOptions helpers_;
  const ExportNames exports_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_ADMISSION_ADMISSION_H_
