// <state-dir>/jobs/<uid>/samples.jsonl: one JSON object a line, a completion of
// one of a job's eval_prompts (server/run/evaluation_samples.h).
//
// Stateless; thread-safe.
#ifndef ROUNDHOUSE_SERVER_API_HISTORY_SAMPLE_HISTORY_H_
#define ROUNDHOUSE_SERVER_API_HISTORY_SAMPLE_HISTORY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/roundhouse/v1/fine_tuning_job.pb.h"

namespace roundhouse {

// The samples of the newest step, in the order of the file.  Empty when there
// is no such file; what is no such line (the torn last one of a killed writer)
// is left out.
absl::StatusOr<std::vector<v1::EvalSample>> ReadNewestSamples(
    const std::string& path);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_HISTORY_SAMPLE_HISTORY_H_
