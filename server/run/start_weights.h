// What a job starts from: which weights, what of a checkpoint, and what its
// user is told of it.
//
// Functions of the job's options; they read files and change nothing.
#ifndef ROUNDHOUSE_SERVER_RUN_START_WEIGHTS_H_
#define ROUNDHOUSE_SERVER_RUN_START_WEIGHTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/job/runner_options.h"
#include "server/run/job_events.h"
#include "server/run/start_point.h"
#include "server/run/weights_loader.h"
#include "server/weights/file_table.h"
#include "server/weights/training_state.h"

namespace roundhouse {

// A file is not what it was when it was verified.
bool IsOfFile(const absl::Status& status);

// INVALID_ARGUMENT: the prepared data are not those of the submit (they had to
// be prepared again, and their source had changed), and would give other bits.
absl::Status CheckData(const RunnerOptions& options);

// A checkpoint has all that trains, but a base stays where it was: whether the
// job reads its model or adapter.
bool ReadsSources(const StartPoint& start, const TrainingState& state);

// What to load to go on from a checkpoint of `step`: errors as ResumeParts, and
// INVALID_ARGUMENT when it is of another adapter.  Any thread.
absl::StatusOr<std::vector<FilePart>> CheckpointParts(
    const RunnerOptions& options, const TrainingState& state,
    const std::string& path, int64_t step);

// What trains: a checkpoint's, an adapter's, drawn, or the model's.  Tells of
// an adapter.
WeightsLoader::Weights FirstWeights(const RunnerOptions& options,
                                    const TrainingState& state,
                                    const StartPoint& start, JobEvents& events);

// Says which rows are trained on again, or are left out, because the job of the
// checkpoint took them in another order; "": none.  Blocks on the disk; any
// thread.
std::string RowsWarning(const RunnerOptions& options, const StartPoint& start);

// The job goes on from a checkpoint: tells of it, and warns where it is
// another job's, of other data or with the same rows in another order.
void TellOfStart(const RunnerOptions& options, const StartPoint& start,
                 JobEvents& events);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_RUN_START_WEIGHTS_H_
