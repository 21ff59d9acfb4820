// The checkpoint that a job goes on from: the newest good one of its own, or
// the one that its spec names.
#ifndef ROUNDHOUSE_SERVER_RUN_START_POINT_H_
#define ROUNDHOUSE_SERVER_RUN_START_POINT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "server/weights/checkpoint.h"

namespace roundhouse {

struct StartOptions {
  const FileOpener* files = nullptr;  // of checkpoints; outlives the call
  std::vector<std::string> own;       // the job's checkpoints, newest first
  std::string named;                  // by its spec; "": none
  // The hash of the job's tokens, which every own checkpoint was trained on;
  // "": not known, none is refused for it.
  std::string dataset_sha256;
  // What to load of a checkpoint that verified; an error: the job can't go on
  // from it.  Called on ChooseStart's thread.
  std::function<absl::StatusOr<std::vector<FilePart>>(const std::string& path,
                                                      int64_t step)>
      parts;
};

struct StartPoint {
  std::string path;  // "": none, the job starts from its model
  CheckpointManifest manifest;
  std::vector<FilePart> parts;
  // trainer_state.json and samples.jsonl as they were saved; "": none.
  std::string trainer_state;
  std::string samples;
  // Which rows are trained on again or are left out, where that is another
  // job's; "": none, or it was trained on other data.
  std::string rows_warning;
  bool own = false;                // of this job, not named by its spec
  std::vector<std::string> notes;  // what was not used, and why
  // The job's own checkpoints that are corrupt, for MoveAside.
  std::vector<std::string> corrupt;
  // DATA_LOSS: of the one that the spec names.  UNAVAILABLE: a checkpoint can't
  // be read just now.  INTERNAL: the disk fails, and no other one is good.
  absl::Status status;
};

// Reads and verifies until one is good: of `own` the first, else `named`.
// Whatever is wrong with an own one is corruption: it is to be moved aside, and
// the next older one counts.  One that the disk
// does not give may be whole: it stays where it is, and an older one counts;
// the job never starts anew beside it.  `named` is someone else's and stays as
// it is.  Blocks on the disk; any thread.
StartPoint ChooseStart(const StartOptions& options);

// QuarantineCheckpoint of each; what went wrong with that.  Call it when the
// notes are in the job's log: nobody finds these checkpoints again.  Blocks on
// the disk; any thread.
std::vector<std::string> MoveAside(const std::vector<std::string>& corrupt);

// The text of a trainer_state.json, which `path` names in the log; an object
// without anything where it is none.  A checkpoint that a job file names is
// somebody else's: what it says may be nested as deep as it likes.
nlohmann::json ParseTrainerState(const std::string& text,
                                 const std::string& path);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_RUN_START_POINT_H_
