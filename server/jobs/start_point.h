// The checkpoint that a job goes on from: the newest good one of its own, or
// the one that its spec names.
#ifndef ROUNDHOUSE_SERVER_JOBS_START_POINT_H_
#define ROUNDHOUSE_SERVER_JOBS_START_POINT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/model/input_file.h"
#include "nlohmann/json.hpp"
#include "server/weights/checkpoint.h"

namespace roundhouse {

// Of a checkpoint's trainer_state.json, and of its samples.jsonl: larger ones
// are left alone, and the job's history begins anew.
inline constexpr uint64_t kMaxHistoryBytes = 256 << 20;

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

// A file of a checkpoint's history; "" where there is none, or none that may be
// read (the log says why).  A checkpoint that a job file names is somebody
// else's: its files may be of any size and kind.  Blocks on the disk.
std::string ReadHistoryText(const FileOpener& files, const std::string& path);
// trainer_state.json; an object without anything where it is none.
nlohmann::json ReadTrainerState(const FileOpener& files,
                                const std::string& path);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_JOBS_START_POINT_H_
