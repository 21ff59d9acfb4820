// Whose result a directory is: a small file in it, roundhouse.json, which
// nothing else reads.
//
//   {"job": "job-17", "job_uid": "5f0c..."}
//
// Ids can begin anew with another store; uids can't.  A job's result takes the
// place of a directory only if that one is its own (DirectoryPlan).
// Blocking file access; thread-compatible.
#ifndef ROUNDHOUSE_SERVER_WEIGHTS_OUTPUT_OWNER_H_
#define ROUNDHOUSE_SERVER_WEIGHTS_OUTPUT_OWNER_H_

#include <string>

namespace roundhouse {

inline constexpr char kOutputOwnerName[] = "roundhouse.json";

std::string OutputOwnerJson(const std::string& job, const std::string& uid);

// The uid of the job that `directory` is of; "" where it does not say.
std::string OutputOwner(const std::string& directory);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_WEIGHTS_OUTPUT_OWNER_H_
