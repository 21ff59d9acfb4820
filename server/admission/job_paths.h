// Where in the state directory a job's files lie.  Pure values; thread-safe.
#ifndef ROUNDHOUSE_SERVER_ADMISSION_JOB_PATHS_H_
#define ROUNDHOUSE_SERVER_ADMISSION_JOB_PATHS_H_

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/store/store_records.h"

namespace roundhouse {

class JobPaths {
 public:
  explicit JobPaths(std::string state_dir) : state_dir_(std::move(state_dir)) {}

  const std::string& state_dir() const { return state_dir_; }
  // Folders that all jobs share.
  std::string jobs() const { return state_dir_ + "/jobs"; }
  std::string outputs() const { return state_dir_ + "/outputs"; }
  // What is prepared once for all jobs on the same data.
  std::string prepared() const { return state_dir_ + "/datasets"; }

  // The job's own: logs, prepared data, checkpoints.
  std::string Directory(const JobRecord& job) const {
    return absl::StrCat(jobs(), "/", job.uid);
  }
  // Holds its prepared splits.
  std::string Data(const JobRecord& job) const {
    return Directory(job) + "/data";
  }
  // Its result.
  std::string Output(const JobRecord& job) const {
    return absl::StrCat(outputs(), "/",
                        job.output_name.empty() ? job.id : job.output_name);
  }
  // Holds the step after which a job that was asked to finish ends.
  std::string FinishMark(const JobRecord& job) const {
    return Directory(job) + "/finish-after-step";
  }

 private:
  const std::string state_dir_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_ADMISSION_JOB_PATHS_H_
