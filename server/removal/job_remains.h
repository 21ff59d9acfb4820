// What lies on the disk of one job, by what it is.
//
// Blocking; thread-safe.
#ifndef ROUNDHOUSE_SERVER_REMOVAL_JOB_REMAINS_H_
#define ROUNDHOUSE_SERVER_REMOVAL_JOB_REMAINS_H_

#include <cstdint>
#include <map>
#include <string>

#include "server/admission/job_paths.h"
#include "server/removal/tree_bytes.h"
#include "server/store/store_records.h"

namespace roundhouse {

struct JobRemains {
  std::map<int64_t, TreeBytes> checkpoints;  // by steps
  TreeBytes broken;    // what is left of checkpoints that are none
  TreeBytes data;      // prepared splits and its tokenizer
  TreeBytes logs;      // all else in the job's folder
  std::string output;  // its result's path; "": there is none
  TreeBytes output_bytes;
};

JobRemains FindRemains(const JobPaths& paths, const JobRecord& job);

// Whether the directory is the job's result, or says nothing of whose it is.
bool IsOutputOf(const std::string& directory, const std::string& job_uid);

// Where the job's result is: where its record says, or else where one of its
// name would be, if what lies there says that it is this job's.  "": nowhere.
std::string FindOutput(const JobPaths& paths, const JobRecord& job);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_REMOVAL_JOB_REMAINS_H_
