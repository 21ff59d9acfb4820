// The checkpoint that a job goes on from: the newest good one of its own, or
// the one that its spec names.
#ifndef ROUNDHOUSE_SERVER_JOBS_START_POINT_H_
#define ROUNDHOUSE_SERVER_JOBS_START_POINT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/weights/checkpoint.h"

namespace roundhouse {

struct StartPoint {
  std::string path;  // "": none, the job starts from its model
  CheckpointManifest manifest;
  bool own = false;                // of this job, not named by its spec
  std::vector<std::string> notes;  // what was found corrupt
  absl::Status status;             // of the one that the spec names
};

// Reads and verifies until one is good: of `own` the first, else `named` ("":
// none).  Moves a corrupt own one aside (QuarantineCheckpoint), and leaves
// `named`, which is someone else's, as it is.  Blocks on the disk; any thread.
StartPoint ChooseStart(const std::vector<std::string>& own,
                       const std::string& named);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_JOBS_START_POINT_H_
