// Whose result a directory is: a small file in it, roundhouse.json, which
// nothing else reads.
//
//   {"job": "job-17", "job_uid": "5f0c..."}
//
// An export among the server's outputs says whose it is:
//
//   {"project": "vision"}, {"user": "alice"}
//
// and so does a result whose job was deleted:
//
//   {"job": "job-17", "job_uid": "5f0c...", "project": "vision"}
//
// Ids can begin anew with another store; uids can't.  A job's result takes the
// place of a directory only if that one is its own (DirectoryPlan).
// Blocking file access; thread-compatible.
#ifndef ROUNDHOUSE_SERVER_WEIGHTS_OUTPUT_OWNER_H_
#define ROUNDHOUSE_SERVER_WEIGHTS_OUTPUT_OWNER_H_

#include <string>

namespace roundhouse {

inline constexpr char kOutputOwnerName[] = "roundhouse.json";

// Each is "" where the file does not say it.
struct OutputMark {
  std::string job_uid;
  std::string project;  // an export of weights of this project
  std::string user;     // an export of others, by this user or principal
};

std::string OutputOwnerJson(const std::string& job, const std::string& uid);
std::string KeptOutputJson(const std::string& job, const std::string& uid,
                           const std::string& project);
std::string ExportOwnerJson(const OutputMark& mark);

// Without anything where there is no such file, or none of ours.
OutputMark ReadOutputMark(const std::string& directory);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_WEIGHTS_OUTPUT_OWNER_H_
