// What is asked to be exported, and where to.
//
// Reads files and the store.  Thread-safe.  Blocks on the disk, for long where
// a checkpoint is hashed: for the exporter's thread.
#ifndef ROUNDHOUSE_SERVER_ADMISSION_EXPORT_NAMES_H_
#define ROUNDHOUSE_SERVER_ADMISSION_EXPORT_NAMES_H_

#include <string>

#include "absl/status/statusor.h"
#include "server/admission/job_checker.h"
#include "server/admission/weight_names.h"
#include "server/spec/paths.h"
#include "server/weights/export_plan.h"

namespace roundhouse {

class ExportNames {
 public:
  // All outlive it; the last of the roots are the server's jobs and outputs.
  ExportNames(const DataRoots& roots, const WeightNames& names,
              const JobChecker& checker)
      : roots_(roots), names_(names), checker_(checker) {}

  // Errors have the field "source" or "output".
  absl::StatusOr<ExportPlan> Plan(const ExportRequest& request) const;
  // The weights that `source` means, with their directory. kFailedPrecondition:
  // they are of a job that has no output.
  absl::StatusOr<NamedWeights> Source(const std::string& source,
                                      const NameUser& user) const;

 private:
  absl::StatusOr<std::string> Output(const std::string& output,
                                     const NameUser& user) const;
  absl::StatusOr<std::string> OutputFolder(const std::string& parent,
                                           const NameUser& user) const;
  // Whose the export of these weights is.
  absl::StatusOr<OutputMark> MarkOf(const NamedWeights& source,
                                    const NameUser& user) const;
  absl::Status CheckOutputIn(const std::string& parent,
                             const std::string& name) const;

  const DataRoots& roots_;
  const WeightNames& names_;
  const JobChecker& checker_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_ADMISSION_EXPORT_NAMES_H_
