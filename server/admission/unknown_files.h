// What lies in the state directory without the job store knowing it: jobs that
// a damaged or lost store has forgotten.
//
// Nothing of it is touched.  It is said, and the numbers that it shows to have
// been given are not given again.  Blocking file access; thread-compatible.
#ifndef ROUNDHOUSE_SERVER_ADMISSION_UNKNOWN_FILES_H_
#define ROUNDHOUSE_SERVER_ADMISSION_UNKNOWN_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/store/store.h"

namespace roundhouse {

// Larger numbers were not given by any store.
inline constexpr int64_t kMaxUnknownJob = 1'000'000'000;

struct UnknownFiles {
  // Folders jobs/<uid> of no job's uid.
  std::vector<std::string> jobs;
  // Folders outputs/<name> that are called after a job that is not there, or
  // whose roundhouse.json has the uid of none.
  std::vector<std::string> outputs;
  // The largest number that they, and results that stayed when their jobs were
  // deleted, show to be given.
  int64_t last_job = 0;
};

absl::StatusOr<UnknownFiles> FindUnknownFiles(const std::string& state_dir,
                                              const JobStore& store);

// A sentence that names the first of them; "" where there are none.
std::string Describe(const UnknownFiles& unknown);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_ADMISSION_UNKNOWN_FILES_H_
