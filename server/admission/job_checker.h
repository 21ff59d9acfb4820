// What is checked when a job is submitted, or asked about by a dry run; and the
// one place that makes an AdmittedJob.
//
// Reads files and the store, and writes nothing.  Thread-safe.  Blocks on the
// disk: not for the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_ADMISSION_JOB_CHECKER_H_
#define ROUNDHOUSE_SERVER_ADMISSION_JOB_CHECKER_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/model/directory.h"
#include "server/admission/admitted_job.h"
#include "server/admission/job_fit.h"
#include "server/admission/weight_names.h"
#include "server/api/job_engine.h"
#include "server/spec/job_file.h"
#include "server/spec/paths.h"
#include "server/store/store.h"
#include "server/weights/adapter_files.h"

namespace roundhouse {

class JobChecker {
 public:
  // All outlive it.
  JobChecker(const DataRoots& roots, const JobStore& store,
             const WeightNames& names, const JobPaths& paths, const JobFit& fit)
      : roots_(roots), store_(store), names_(names), paths_(paths), fit_(fit) {}

  // All that is wrong with the file, by line; or what is wrong with what it
  // names, with the field.
  absl::StatusOr<AdmittedJob> Check(const SubmitRequest& request) const;

  // A job of the store, whose model and adapter are read anew.  Check's errors
  // of these; INTERNAL and UNAVAILABLE are the disk's, or a shortage's.
  absl::StatusOr<AdmittedJob> TakeUp(const JobRecord& job) const;
  // Whether model and adapter are the files that they were: none changed, came
  // or went.
  bool IsStillSo(const AdmittedJob& job) const;

  // Whether a result may have the name.
  absl::Status CheckOutputName(const std::string& name) const;

 private:
  absl::StatusOr<ModelDirectory> CheckModel(const JobSpec& spec) const;
  // The adapter that the spec names, checked against the model; none: none.
  absl::StatusOr<std::optional<AdapterDirectory>> CheckAdapter(
      const JobSpec& spec, const ModelConfig& model) const;
  // The spec with target_modules as the model has them.
  absl::StatusOr<JobSpec> CompleteTargets(JobSpec spec,
                                          const ModelConfig& model) const;
  // The spec with what it leaves to the adapter that it goes on from.
  absl::StatusOr<JobSpec> CompleteAdapter(
      JobSpec spec, const std::optional<AdapterDirectory>& adapter,
      const ModelConfig& model) const;
  absl::StatusOr<std::optional<CheckpointManifest>> CheckResume(
      const ResolvedSpec& resolved, const ModelConfig& model) const;
  // The dtype of the checkpoint it goes on from; empty: none, or not known.
  std::optional<DType> DtypeToGoOn(const JobSpec& spec) const;
  absl::StatusOr<SourceFiles> FilesOf(
      const JobSpec& spec, const ModelDirectory& model,
      const std::optional<AdapterDirectory>& adapter) const;
  // REQUIRES: its paths are resolved.
  absl::StatusOr<AdmittedJob> CheckSpec(const JobSpec& located,
                                        ModelDirectory model) const;
  // What follows from spec and model alone.
  void Measure(AdmittedJob* job) const;

  const DataRoots& roots_;
  const JobStore& store_;
  const WeightNames& names_;
  const JobPaths& paths_;
  const JobFit& fit_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_ADMISSION_JOB_CHECKER_H_
