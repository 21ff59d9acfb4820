// Names of jobs: the API's "projects/default/fineTuningJobs/job-7", and what
// people write for what a job made, "job:dates/checkpoint-40".
//
// Thread-safe.
#ifndef ROUNDHOUSE_SERVER_ACCESS_JOB_NAMES_H_
#define ROUNDHOUSE_SERVER_ACCESS_JOB_NAMES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/store/store.h"

namespace roundhouse {

std::string JobName(const std::string& project, const std::string& id);

struct ParsedJobName {
  std::string id;
  std::string project;  // "": a bare id
};
// From a full name or a bare id.  kInvalidArgument with the field `name`.
absl::StatusOr<ParsedJobName> ParseJobName(const std::string& name);

// What a name of weights may mean: a job's id or output name, a full name, each
// with "/checkpoint-40" or "/checkpoints/40" behind it.  Pure.
struct WeightsName {
  std::string job;
  std::string project;  // "": it does not say
  std::optional<int64_t> step;
  bool must_be_job = false;  // it said so: "job:", or a full name
};
WeightsName ParseWeightsName(const std::string& name);

// NOT_FOUND, of a name that FindJob does not find.
absl::Status NoSuchJob(const std::string& name);

// A job by its id, or the newest of that output_name.  NOT_FOUND.
absl::StatusOr<JobRecord> FindJob(const JobStore& store,
                                  const std::string& name);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_ACCESS_JOB_NAMES_H_
