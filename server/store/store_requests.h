// What the job store is asked for: new jobs, and what is to change of those
// that there are.  Plain values.
#ifndef ROUNDHOUSE_SERVER_STORE_STORE_REQUESTS_H_
#define ROUNDHOUSE_SERVER_STORE_STORE_REQUESTS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/store/store_db.h"
#include "server/store/store_records.h"

namespace roundhouse {

// Asked in the transaction that changes something, on the writer's thread; its
// error is the answer.
using MayWrite = std::function<absl::Status(Database*)>;

struct NewJob {
  std::string text;
  std::string resolved;
  std::string
      files;  // that it was submitted with (server/admission/source_files.h)
  std::string output_name;
  std::string request_id;           // "": not idempotent.
  std::string principal = "local";  // Who asks, as in "uid:1000".
  std::string owner;                // "": the principal.
  std::string project = kDefaultProject;
  Priority priority = Priority::kNormal;
  MayWrite may_be_made = [](Database*) { return absl::OkStatus(); };
};

struct TransitionInfo {
  JobReason reason = JobReason::kNone;
  std::string message;
  // To PAUSED only: the job goes on where it was (JobProgress::memory_kept),
  // and its attempt does not end.
  bool memory_kept = false;
};

// What becomes known while a job runs; an empty optional leaves it as it is.
struct JobDetails {
  std::optional<std::string> output_path;
  std::optional<DatasetCounts> dataset;
  // For the state that it is in.
  std::optional<JobReason> reason;
  std::optional<std::string> message;
};

// What somebody wants to be changed of a job that has not ended.
struct PriorityChange {
  Priority priority = Priority::kNormal;
  int64_t revision = 0;  // which the job must have; 0: any
  // Where the job becomes urgent.
  MayWrite may_be_urgent = [](Database*) { return absl::OkStatus(); };
};

// What goes with a job that is deleted, and what its watchers are told.
struct JobRemoval {
  std::string output_path;  // ""; else its output, which goes, too
  std::string message;
};

// Checkpoints that go while their job stays.
struct GoingCheckpoints {
  std::vector<CheckpointRecord> checkpoints;
  std::string last_path;  // of the newest that stays; ""
  std::string message;    // of the event
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_STORE_STORE_REQUESTS_H_
